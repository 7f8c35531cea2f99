#include "runner/gpu_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "quire/engine_limits.h"
#include "runner/gpu_launched.h"

namespace quire {
namespace {

ModelOptions place_on(const ModelOptions& model, const RankGroups& groups, const Device& device) {
  ModelOptions options = stage_of_model(model, groups.stage());
  options.rank = groups.tensor.rank();
  options.size = groups.tensor.size();
  options.device = device;
  return options;
}

// More than an engine has in flight: one step a stage, and another one with async scheduling.
size_t num_step_arrays(const RankGroups& groups) {
  return static_cast<size_t>(groups.pipeline.size()) + 3;
}

// Steps of a kind that run without a graph before one is made anew, where there was no memory for
// it.
constexpr int64_t kRunsBetweenCaptures = 1000;

}  // namespace

GpuRunner::GpuRunner(const RunnerOptions& options, const GpuRank& gpu, const RankGroups& groups,
                     const StageLinks& links, ThreadPool& pool)
    : options_(options),
      comm_(groups.tensor),
      pool_(pool),
      library_(*gpu.library),
      sizes_(gpu_sizes(library_.kernels(), options)),
      gpu_(library_.make_stream(gpu.index, options.linear_algorithms)),
      memory_(library_.reserve(gpu.index, gpu.memory_bytes)),
      device_{.type = DeviceType::kCuda,
              .index = gpu.index,
              .memory = memory_.get(),
              .compute_capability = options.model.device.compute_capability},
      stage_(groups.pipeline.size() == 1
                 ? std::nullopt
                 : std::make_optional<GpuStage>(options, groups.stage(), groups.pipeline.size(),
                                                sizes_.max_ids(), links, device_)),
      stream_(pool, device_, *gpu_, library_.kernels()),
      host_stream_(pool),
      model_(create_model(place_on(options.model, groups, device_))),
      kv_cache_(model_->kv_cache_shape(), options.kv_cache_dtype, options.block_size,
                options.num_blocks, device_),
      cached_ids_(static_cast<size_t>(options.num_blocks * options.block_size) * sizeof(int32_t),
                  device_),
      arena_(Buffer(CountedModel(place_on(options.model, groups, device_))
                        .activation_bytes(options.max_tokens, sizes_.largest_step.num_logits),
                    device_)),
      inputs_(library_, device_, sizes_.largest_step, num_step_arrays(groups)),
      attention_scratch_(static_cast<size_t>(sizes_.attention_scratch), device_),
      sample_scratch_(static_cast<size_t>(sizes_.sample_scratch), device_),
      sampled_ids_(static_cast<size_t>(sizes_.sampled_ids), device_),
      lora_slots_(options.max_loras == 0
                      ? std::nullopt
                      : std::make_optional<GpuLoraSlots>(*model_, options, device_, pool)),
      logprobs_(device_, sizes_.largest_step.num_logits, kMaxLogprobs),
      prompt_ids_(library_, device_, sizes_.largest_step.num_logits),
      masks_(comm_.rank() != 0 || !groups.is_last_stage() || options.token_masks == nullptr
                 ? nullptr
                 : std::make_unique<GpuMasks>(library_, device_, sizes_.largest_step.num_logits,
                                              options.model.config.vocab_size)),
      results_(library_.allocate_pinned(inputs_.num_arrays() * result_bytes())),
      table_(options.eos_token_ids) {
  if (lora_slots_) model_->bind_adapters(lora_slots_->adapters());
  model_->bind_cache(stream_, comm_, kv_cache_.layers());
  if (options.draft && is_first()) {
    drafter_ = GpuDrafter::make(options,
                                {.library = library_,
                                 .gpu = *gpu_,
                                 .stream = stream_,
                                 .comm = comm_,
                                 .device = device_,
                                 .sample_scratch = sample_scratch_.data(),
                                 .ids = stage_ ? stage_->recent_ids() : sampled_ids(),
                                 .first_id = stage_ ? stage_->first_draft() : sizes_.first_draft},
                                *model_);
  }
  if (stage_ && options.draft && options.draft->model.eagle) {
    taps_.emplace(options, groups.stage(), links, device_);
  }
  memory_->finish_uploads();
}

GpuRunner::~GpuRunner() = default;

void GpuRunner::load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) {
  if (options_.load_format == LoadFormat::kDummy) {
    fill_dummy_weights(model_->parameters(), options_.seed, pool_, on_progress);
  } else {
    check(checkpoint != nullptr, "weights are loaded from a checkpoint");
    load_weights(*checkpoint, model_->parameters(), pool_, on_progress);
  }
  if (drafter_) drafter_->load(on_progress);
  memory_->finish_uploads();
  if (stage_) stage_->connect(*gpu_);
  if (taps_) taps_->connect(*gpu_);
}

void GpuRunner::learn_sampled(const ScheduledBatch& batch) {
  if (!stage_) {
    // Which drafts of a step stay decides where the next chunks of its sequences begin.
    const bool had_drafts = !in_flight_.empty() && in_flight_.back()->has_drafts;
    return settle(had_drafts || makes_drafts(batch) ? 0 : 1);
  }
  if (!is_first() && !is_last()) return table_.cut_to_computed(batch);
  settle(std::min(stage_->num_steps_beside(), num_steps_not_needed_by(batch)));
}

void GpuRunner::receive_needed(std::span<const StepSequence> sequences) {
  for (const StepSequence& sequence : sequences) {
    const std::vector<int32_t>& ids = sequence.state.output_token_ids;
    // The newest token, which drafts may follow.
    const auto num_rows = static_cast<size_t>(sequence.chunk.num_logits_rows());
    if (num_rows == 0 || ids.size() < num_rows) continue;
    const int32_t place = row_of_unknown(ids[ids.size() - num_rows]);
    while (place >= 0 && !stage_->has_ids(place)) receive_oldest_ids();
  }
}

bool GpuRunner::is_awaited(const Launched& step) const {
  return std::ranges::any_of(step.sampled, [&](const Launched::Sampled& sampled) {
    const SequenceState* state = table_.find(sampled.id);
    if (state == nullptr) return false;
    if (sampled.is_verified()) return state->serial == sampled.serial;
    return sampled.index < state->output_token_ids.size() &&
           row_of_unknown(state->output_token_ids[sampled.index]) >= 0;
  });
}

void GpuRunner::receive_oldest_ids() {
  const auto oldest = std::ranges::find_if(in_flight_, [](const std::shared_ptr<Launched>& step) {
    return !step->sampled.empty() && !step->learned;
  });
  check(oldest != in_flight_.end(), "the ids of sampled tokens are awaited");
  Launched& step = **oldest;
  const size_t count = step.sampled.size();
  gpu_->copy_to_host(step.ids, stage_->receive_ids(*gpu_, count), count * sizeof(int32_t));
  step.learned = gpu_->record(EventWait::kSpin);
  while (taps_ && !taps_->held().empty() && taps_->held().front().number <= step.output.step) {
    keep_oldest_taps();
  }
}

void GpuRunner::settle(size_t keep) {
  while (in_flight_.size() > keep) {
    Launched& step = *in_flight_.front();
    if (is_last()) {
      step.finish(step.masks.claim(), &pool_);
    } else if (!step.sampled.empty()) {
      while (!step.learned) receive_oldest_ids();
      // What is queued before the ids may take a step.
      if (!is_awaited(step)) {
        in_flight_.pop_front();
        continue;
      }
      step.learned->wait();
    }
    tell_tokens(step);
    in_flight_.pop_front();
  }
}

void GpuRunner::tell_tokens(const Launched& step) {
  std::map<size_t, std::vector<int32_t>> kept;  // of chunks with drafts, by first row
  size_t first_row = 0;
  step.for_each_kept([&](size_t row) {
    const Launched::Sampled& sampled = step.sampled[row];
    if (!sampled.is_verified()) {
      return table_.resolve_token(sampled.id, sampled.index, step.token_of(row));
    }
    if (!sampled.has_drafts) first_row = row;
    kept[first_row].push_back(step.token_of(row));
  });
  for (const auto& [row, token_ids] : kept) {
    const Launched::Sampled& first = step.sampled[row];
    table_.replace_drafts(first.id, first.serial, first.index, token_ids);
  }
}

ForwardBatch GpuRunner::upload(std::span<const StepSequence> sequences,
                               const SamplingPlaces& places, const StepLoras& loras,
                               Launched& step) {
  const StepShape& shape = step.shape;
  const StepArrays arrays = inputs_.next(shape);
  fill_step(sequences, places, shape, arrays, options_.block_size);
  LoraGroups groups;
  if (loras.any()) fill_lora_items(loras.row_slots, shape, arrays);
  if (shape.orders_lora_rows) groups = fill_lora_order(loras.row_slots, shape, arrays);
  if (step.began == nullptr) step.began = gpu_->record(EventWait::kSpin);
  on_device_ = inputs_.upload(*gpu_);
  if (!is_first()) {
    stage_->receive_state(*gpu_, shape.num_tokens);
    step.began = gpu_->record(EventWait::kSpin);  // until here it waited for another stage
  }
  lora_step_.reset();
  if (loras.any()) {
    lora_step_.emplace(lora_slots_->step(on_device_, shape, std::move(groups), loras.extras));
  }
  ForwardBatch forward = gpu_forward_batch(on_device_, shape);
  forward.attention_scratch = attention_scratch_.data();
  return forward;
}

IntermediateTensors GpuRunner::run_model(ForwardBatch& forward) {
  const ops::CudaResolveTokens resolve = {
      .token_ids = on_device_.token_ids,
      .sources = on_device_.token_sources,
      .sampled = stage_ ? stage_->recent_ids() : sampled_ids(),
      .slot_mapping = on_device_.slot_mapping,
      .cached_ids = reinterpret_cast<int32_t*>(cached_ids_.data()),
      .num_tokens = forward.num_tokens};
  if (is_first() || is_last()) library_.kernels().resolve_tokens(gpu_->cuda(), resolve);
  ForwardContext context{stream_, options_.model.dtype, arena_, comm_, forward};
  if (lora_step_) context.gpu_lora = &*lora_step_;
  if (taps_) {
    context.aux = taps_->states_of(forward.num_tokens);
  } else if (drafter_) {
    context.aux = drafter_->states_of(forward.num_tokens);
  }
  const IntermediateTensors state =
      model_->forward(context, stage_ ? stage_->received_state(forward.num_tokens) : std::nullopt);
  if (drafter_ && !taps_) drafter_->keep(forward);
  return state;
}

Tensor GpuRunner::run_output(ForwardBatch& forward, const Tensor& hidden, const Launched& step,
                             bool splits) {
  const StepShape& shape = step.shape;
  ForwardContext context{stream_, options_.model.dtype, arena_, comm_, forward, splits};
  if (lora_step_) context.gpu_lora = &*lora_step_;
  const Tensor logits = model_->compute_logits(context, hidden);
  if (step.has_masks) return logits;
  const int64_t first_row =
      splits ? RowShare(shape.num_logits, comm_.rank(), comm_.size()).begin : 0;
  sample(logits, shape, first_row);
  if (splits) gather_sampled(shape.num_logits);
  return logits;
}

GpuRunner::Computed GpuRunner::run_captured(ForwardBatch& forward, Launched& step, bool splits) {
  const auto run = [&] {
    Computed computed{.state = run_model(forward), .logits = {}};
    if (is_last()) computed.logits = run_output(forward, computed.state.hidden, step, splits);
    return computed;
  };
  const GraphKey key = {.seqs = step.shape.num_seqs,
                        .tokens = step.shape.num_tokens,
                        .queries = step.shape.max_decode_queries,
                        .table_width = step.shape.table_width,
                        .adjusts_logits = step.shape.adjusts_logits,
                        .splits_logits = splits,
                        .has_loras = lora_step_.has_value(),
                        .lora_extras = lora_step_ ? lora_step_->extras() : LoraExtras(),
                        .samples = !step.has_masks};
  Captured& captured = captured_[key];
  // Where no graph can be made, for want of memory, steps without one are its kind.
  step.output.is_first_of_kind = captured.graph == nullptr && captured.num_runs <= 1;
  if (captured.graph == nullptr && captured.num_runs % kRunsBetweenCaptures == 1) {
    capture(run, captured);
  }
  if (captured.graph != nullptr) {
    try {
      gpu_->launch(*captured.graph);
      return captured.computed;
    } catch (const OutOfDeviceMemory&) {
      captured.graph.reset();
    }
  }
  // The first time, too: what kernels and libraries set up at their first use cannot be captured.
  const Computed computed = run();
  ++captured.num_runs;
  return computed;
}

void GpuRunner::capture(const std::function<Computed()>& run, Captured& captured) {
  const Arena::Scope scope(arena_);
  gpu_->begin_capture();
  try {
    captured.computed = run();
  } catch (...) {
    gpu_->abandon_capture();
    throw;
  }
  try {
    captured.graph = gpu_->end_capture();
  } catch (const OutOfDeviceMemory&) {
    // The step runs without one.
  }
}

std::unique_ptr<PendingStep> GpuRunner::launch(const ScheduledBatch& batch) {
  learn_sampled(batch);
  const std::vector<StepSequence> sequences = table_.apply(batch);
  if (sequences.empty()) {
    StepOutput nothing;
    nothing.step = batch.step;
    return std::make_unique<FinishedStep>(std::move(nothing));
  }
  if (stage_ && is_first()) receive_needed(sequences);
  place_drafts(sequences);
  const SamplingPlaces places = sampling_places(sequences);
  std::shared_ptr<Launched> step = describe(batch, sequences, places);
  if (batch.num_failed_steps < num_failed_steps_) {
    step = make_void(*step, {});
  } else {
    try {
      run(batch, sequences, places, *step);
    } catch (const OutOfDeviceMemory& error) {
      // A mask that was told its token is told no other.
      if (comm_.size() > 1 || stage_ || (step->has_masks && !step->masks.claim())) throw;
      step = make_void(*step, error.what());
      ++num_failed_steps_;
    }
  }
  // The engine waits for the rank that reports and goes on at once, so that wait spins; the others
  // may sleep.
  const bool reports = comm_.rank() == 0 && is_last();
  step->done = gpu_->record(reports ? EventWait::kSpin : EventWait::kSleep);
  remember(sequences, step);
  return std::make_unique<Pending>(step);
}

void GpuRunner::run(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                    const SamplingPlaces& places, Launched& step) {
  if (drafter_) make_drafts(batch, sequences, step);
  if (stage_ && is_last() && options_.draft) receive_drafts(step);
  const Arena::Scope scope(arena_);
  const Computed computed = compute(sequences, places, step);
  if (taps_ && is_first()) hold_taps(batch, sequences, step);
  if (taps_ && !is_first()) taps_->send(*gpu_, step.shape.num_tokens);
  if (!is_last()) {
    step.computed = gpu_->record(EventWait::kSleep);
    return stage_->send_state(*gpu_, computed.state);
  }
  if (step.has_masks) sample_masked(sequences, computed.logits, step);
  collect(sequences, computed.logits, step);
  if (drafter_ && batch.drafter_reads_prompts) {
    drafter_->read_prompts(find_prompts(tapped_prompts(sequences), table_), step.draft_events);
  }
}

std::shared_ptr<GpuRunner::Launched> GpuRunner::make_void(const Launched& step,
                                                          std::string failure) {
  gpu_->synchronize();  // throws where there is more amiss than memory
  auto result = std::make_shared<Launched>();
  result->output.step = step.output.step;
  result->output.is_void = true;
  result->output.failure = std::move(failure);
  for (const SequenceOutput& sequence : step.output.sequences) {
    result->output.sequences.emplace_back().id = sequence.id;
  }
  for (const Launched::Sampled& sampled : step.sampled) {
    Launched::Sampled& unsampled = result->sampled.emplace_back();
    unsampled.id = sampled.id;
    unsampled.serial = sampled.serial;
    unsampled.index = sampled.index;
    unsampled.sequence = sampled.sequence;
    unsampled.has_drafts = sampled.has_drafts;
    unsampled.draft = sampled.draft;
  }
  result->has_drafts = step.has_drafts;
  result->results = step.results;
  result->ids = step.ids;
  result->draft_ids = step.draft_ids;
  result->first_draft_place = step.first_draft_place;
  std::fill_n(result->ids, result->sampled.size(), 0);
  result->began = gpu_->record(EventWait::kSpin);
  return result;
}

std::shared_ptr<GpuRunner::Launched> GpuRunner::describe(const ScheduledBatch& batch,
                                                         std::span<const StepSequence> sequences,
                                                         const SamplingPlaces& places) {
  auto step = std::make_shared<Launched>();
  step->output.step = batch.step;
  step->output.sequences.resize(sequences.size());
  step->sampled.reserve(places.rows.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    step->output.sequences[i].id = sequences[i].chunk.id;
    for (int64_t row = 0; row < sequences[i].chunk.num_logits_rows(); ++row) {
      step->add_row(sequences[i], i, row, places.rows[step->sampled.size()],
                    options_.synthetic_acceptance);
    }
  }
  std::byte* const results = results_->data() + next_result_ * result_bytes();
  next_result_ = (next_result_ + 1) % inputs_.num_arrays();
  step->results = results_;
  step->ids = reinterpret_cast<int32_t*>(results);
  step->draft_ids = step->ids + sizes_.first_draft;
  step->first_draft_place =
      static_cast<int32_t>(stage_ ? stage_->first_draft() : sizes_.first_draft);
  step->logprobs = results + sizes_.sampled_ids;
  return step;
}

GpuRunner::Computed GpuRunner::compute(std::span<const StepSequence> sequences,
                                       const SamplingPlaces& places, Launched& step) {
  const StepShape& largest = sizes_.largest_step;
  StepShape exact = step_shape(sequences, places, largest);
  StepLoras loras;
  if (lora_slots_) loras = lora_slots_->place(sequences, exact.num_tokens, *gpu_, comm_);
  shape_lora_items(loras, options_.max_loras, exact);
  const std::vector<PromptRows> prompts = prompt_rows(sequences, largest.num_logits);
  // All ranks know which adapters have copies, so all of them run the step in the same shape.
  if (!options_.enforce_eager && prompts.empty() && !loras.extras.copies) {
    if (const auto shape = captured_shape(exact, largest, options_.block_size)) {
      step.shape = *shape;
      shape_lora_items(loras, options_.max_loras, step.shape);
      ForwardBatch forward = upload(sequences, places, loras, step);
      return run_captured(forward, step, splits_logits(step, shape->num_logits));
    }
  }
  step.shape = exact;
  ForwardBatch forward = upload(sequences, places, loras, step);
  Computed computed{.state = run_model(forward), .logits = {}};
  if (!is_last()) return computed;
  const Tensor& hidden = computed.state.hidden;
  compute_prompt_logprobs(prompts, loras, forward, hidden, step);
  if (exact.num_logits > 0) {
    computed.logits = run_output(forward, hidden, step, splits_logits(step, exact.num_logits));
  }
  return computed;
}

void GpuRunner::collect(std::span<const StepSequence> sequences, const Tensor& logits,
                        Launched& step) {
  if (step.sampled.empty()) return;
  const size_t bytes = step.sampled.size() * sizeof(int32_t);
  gpu_->copy_to_host(step.ids, sampled_ids_.data(), bytes);
  if (comm_.rank() == 0) find_logprobs(logits, step);
  if (!step.wants_host && !step.has_masks) return;
  // One rank asks the callbacks and has the masks, and all go on with what it got.
  if (step.wants_host && comm_.rank() == 0) {
    sample_on_host(sequences, logits, step);
    gpu_->copy_to_device(sampled_ids_.data(), step.ids, bytes);
  }
  const auto num_ids = static_cast<int64_t>(step.sampled.size());
  comm_.broadcast(stream_, sampled_ids_of(0, num_ids), 0);
  if (comm_.rank() != 0) gpu_->copy_to_host(step.ids, sampled_ids_.data(), bytes);
}

void GpuRunner::remember(std::span<const StepSequence> sequences,
                         const std::shared_ptr<Launched>& step) {
  // Where run_model() finds the step's ids.
  int32_t first_place = 0;
  if (stage_ && !step->sampled.empty()) {
    if (is_first() || is_last()) first_place = stage_->begin_ids();
    if (is_last()) stage_->send_ids(*gpu_, sampled_ids(), step->sampled.size());
  }
  // Stages in between never learn the tokens. A batch says how many stayed.
  const bool learns = is_first() || is_last();
  // Drafts stay where they are until it is known which of them were sampled.
  for (size_t row = 0; row < step->sampled.size(); ++row) {
    const Launched::Sampled& sampled = step->sampled[row];
    if (learns ? sampled.is_verified() : sampled.draft.has_value()) continue;
    sequences[sampled.sequence].state.output_token_ids.push_back(
        unknown_token(first_place + static_cast<int32_t>(row)));
  }
  if (learns) in_flight_.push_back(step);
}

}  // namespace quire
