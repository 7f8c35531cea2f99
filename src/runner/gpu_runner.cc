#include "runner/gpu_runner.h"

#include <algorithm>
#include <cstring>

#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "quire/engine_limits.h"
#include "runner/host_sampler.h"
#include "runner/sampling_rows.h"

namespace quire {
namespace {

ModelOptions place_on(ModelOptions options, const Communicator& comm, const Device& device) {
  options.rank = comm.rank();
  options.size = comm.size();
  options.device = device;
  return options;
}

// Rows of logits that the host samples at a time, 40 MB of a vocabulary of 152,000.
constexpr size_t kHostRows = 64;

// Steps of a kind that run without a graph before one is made anew, where there was no memory for
// it.
constexpr int64_t kRunsBetweenCaptures = 1000;

DType activation_dtype(const RunnerOptions& options) {
  return options.model.dtype;
}

}  // namespace

struct GpuRunner::Launched {
  struct Sampled {
    SequenceId id = 0;
    size_t index = 0;     // in its sequence's output
    size_t sequence = 0;  // in the batch
    bool on_host = false;
    bool is_masked = false;  // the GPU samples among the tokens that a constraint allows
    // Log-probabilities to be found on the GPU; nothing where they are not asked for, or known.
    std::optional<int> num_logprobs;
  };
  StepOutput output;             // without what the GPU finds out
  std::vector<Sampled> sampled;  // in the order of the rows of logits
  bool wants_host = false;       // some of them are sampled by the host
  bool has_masks = false;        // some of them are masked
  bool wants_logits = false;     // rank 0 does more with some of them than to sample
  StepShape shape;
  LogprobsLayout logprobs_layout;
  StepMasks masks;  // of rank 0
  // What the GPU writes to lives as long as somebody may read it, also when the runner has failed.
  std::shared_ptr<PinnedBuffer> results;
  int32_t* ids = nullptr;         // pinned: the result
  std::byte* logprobs = nullptr;  // pinned: the result, where some were asked for
  std::unique_ptr<DeviceEvent> began;
  std::unique_ptr<DeviceEvent> done;

  // Returns when the GPU is done and the masks were told, which the caller does if it has claimed
  // that.
  void finish(bool tells_masks, ThreadPool* threads) {
    if (!tells_masks) {
      done->wait();
      if (!masks.claim()) return masks.wait_until_told();
    }
    try {
      done->wait();
      masks.tell(ids, threads);
    } catch (...) {
      masks.give_up();
      throw;
    }
  }
};

class GpuRunner::Pending final : public PendingStep {
 public:
  explicit Pending(std::shared_ptr<Launched> step) : step_(std::move(step)) {}

  void finish() override { step_->done->wait(); }

  // The worker tells the masks sooner, with its threads, where it waits for the step as well.
  StepOutput wait() override {
    step_->finish(false, nullptr);
    StepOutput output = std::move(step_->output);
    output.gpu_s = step_->done->seconds_since(*step_->began);
    for (size_t row = 0; row < step_->sampled.size(); ++row) {
      const Launched::Sampled& sampled = step_->sampled[row];
      SequenceOutput& sequence = output.sequences[sampled.sequence];
      sequence.token_ids = {std::max(step_->ids[row], 0)};
      sequence.invalid_logits = step_->ids[row] == ops::kNoToken;
      if (!sampled.num_logprobs || sequence.invalid_logits) continue;
      sequence.logprobs.push_back(GpuLogprobs::read(step_->logprobs, step_->logprobs_layout,
                                                    static_cast<int64_t>(row), step_->ids[row],
                                                    *sampled.num_logprobs));
    }
    return output;
  }

 private:
  std::shared_ptr<Launched> step_;
};

GpuRunner::GpuRunner(const RunnerOptions& options, const GpuRank& gpu, Communicator& comm,
                     ThreadPool& pool)
    : options_(options),
      comm_(comm),
      pool_(pool),
      library_(*gpu.library),
      sizes_(gpu_sizes(library_.kernels(), options)),
      gpu_(library_.make_stream(gpu.index, options.linear_algorithms)),
      memory_(library_.reserve(gpu.index, gpu.memory_bytes)),
      device_{.type = DeviceType::kCuda,
              .index = gpu.index,
              .memory = memory_.get(),
              .compute_capability = options.model.device.compute_capability},
      stream_(pool, device_, *gpu_, library_.kernels()),
      host_stream_(pool),
      model_(create_model(place_on(options.model, comm, device_))),
      kv_cache_(model_->kv_cache_shape(), options.kv_cache_dtype, options.block_size,
                options.num_blocks, device_),
      cached_ids_(static_cast<size_t>(options.num_blocks * options.block_size) * sizeof(int32_t),
                  device_),
      arena_(Buffer(CountedModel(place_on(options.model, comm, device_))
                        .activation_bytes(options.max_tokens, sizes_.largest_step.num_logits),
                    device_)),
      inputs_(library_, device_, sizes_.largest_step),
      attention_scratch_(static_cast<size_t>(sizes_.attention_scratch), device_),
      sample_scratch_(static_cast<size_t>(sizes_.sample_scratch), device_),
      sampled_ids_(static_cast<size_t>(sizes_.sampled_ids), device_),
      lora_slots_(options.max_loras == 0
                      ? std::nullopt
                      : std::make_optional<GpuLoraSlots>(*model_, options, device_, pool)),
      logprobs_(device_, sizes_.largest_step.num_logits, kMaxLogprobs),
      prompt_ids_(library_, device_, sizes_.largest_step.num_logits),
      masks_(comm.rank() != 0 || options.token_masks == nullptr
                 ? nullptr
                 : std::make_unique<GpuMasks>(library_, device_, sizes_.largest_step.num_logits,
                                              options.model.config.vocab_size)),
      results_(library_.allocate_pinned(StepInputs::kRing * result_bytes())),
      table_(options.eos_token_ids) {
  model_->bind_cache(stream_, comm_, kv_cache_.layers());
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
  memory_->finish_uploads();
}

void GpuRunner::settle(size_t keep) {
  while (in_flight_.size() > keep) {
    Launched& step = *in_flight_.front();
    step.finish(step.masks.claim(), &pool_);
    for (size_t row = 0; row < step.sampled.size(); ++row) {
      const int32_t token_id = std::max(step.ids[row], 0);  // kNoToken is a 0 to what follows
      table_.resolve_token(step.sampled[row].id, step.sampled[row].index, token_id);
    }
    in_flight_.pop_front();
  }
}

ForwardBatch GpuRunner::upload(std::span<const StepSequence> sequences,
                               const SamplingPlaces& places, std::span<const int32_t> row_slots,
                               Launched& step) {
  const StepShape& shape = step.shape;
  const StepArrays arrays = inputs_.next(shape);
  fill_step(sequences, places, shape, arrays, options_.block_size);
  if (!row_slots.empty()) fill_lora_items(row_slots, shape, arrays);
  step.began = gpu_->record(EventWait::kSpin);
  on_device_ = inputs_.upload(*gpu_);
  lora_step_.reset();
  if (!row_slots.empty()) lora_step_.emplace(lora_slots_->step(on_device_, shape));
  ForwardBatch forward = gpu_forward_batch(on_device_, shape);
  forward.attention_scratch = attention_scratch_.data();
  return forward;
}

Tensor GpuRunner::run_model(ForwardBatch& forward) {
  const ops::CudaResolveTokens resolve = {
      .token_ids = on_device_.token_ids,
      .sources = on_device_.token_sources,
      .sampled = sampled_ids(),
      .slot_mapping = on_device_.slot_mapping,
      .cached_ids = reinterpret_cast<int32_t*>(cached_ids_.data()),
      .num_tokens = forward.num_tokens};
  library_.kernels().resolve_tokens(gpu_->cuda(), resolve);
  ForwardContext context{stream_, activation_dtype(options_), arena_, comm_, forward};
  if (lora_step_) context.gpu_lora = &*lora_step_;
  return model_->forward(context, std::nullopt).hidden;
}

void GpuRunner::adjust(const Tensor& logits, const StepShape& shape, int64_t first_row) {
  const ops::CudaAdjustLogits args = {
      .logits = logits.data<float>(),
      .stride = logits.row_stride(),
      .rows = logits.dim(0),
      .vocab = logits.dim(1),
      .repetition_penalty = on_device_.repetition_penalty + first_row,
      .presence_penalty = on_device_.presence_penalty + first_row,
      .frequency_penalty = on_device_.frequency_penalty + first_row,
      .row_seqs = on_device_.row_seqs + first_row,
      .num_prompt_tokens = on_device_.num_prompt_tokens + first_row,
      .context_lens = on_device_.context_lens,
      .block_tables = on_device_.block_tables,
      .table_width = shape.table_width,
      .block_size = options_.block_size,
      .cached_ids = reinterpret_cast<const int32_t*>(cached_ids_.data()),
      .bias_start = on_device_.bias_start + first_row,
      .biases = on_device_.biases};
  library_.kernels().adjust_logits(gpu_->cuda(), args);
}

ops::CudaSample GpuRunner::sample_args(const Tensor& logits, int64_t first_row) const {
  return {.logits = logits.data<float>(),
          .stride = logits.row_stride(),
          .rows = logits.dim(0),
          .vocab = logits.dim(1),
          .temperature = on_device_.temperature + first_row,
          .top_k = on_device_.top_k + first_row,
          .top_p = on_device_.top_p + first_row,
          .min_p = on_device_.min_p + first_row,
          .noise_keys = on_device_.noise_keys + 2 * first_row,
          .out = sampled_ids() + first_row,
          .scratch = sample_scratch_.data()};
}

void GpuRunner::sample(const Tensor& logits, const StepShape& shape, int64_t first_row) {
  if (shape.adjusts_logits) adjust(logits, shape, first_row);
  library_.kernels().sample(gpu_->cuda(), sample_args(logits, first_row));
}

void GpuRunner::make_masks(std::span<const StepSequence> sequences, Launched& step) {
  check(options_.token_masks != nullptr, "who constrains requests has their masks");
  settle(0);  // masks depend on the tokens before them
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    if (step.sampled[i].is_masked) step.masks.rows.push_back({.row = i, .mask = nullptr});
  }
  pool_.parallel_for(std::ssize(step.masks.rows), [&](int64_t task, int) {
    StepMasks::Row& row = step.masks.rows[static_cast<size_t>(task)];
    const SequenceState& state = sequences[step.sampled[row.row].sequence].state;
    row.mask = options_.token_masks->at(*state.request, state.index, state.output_token_ids, false);
  });
}

void GpuRunner::sample_masked(std::span<const StepSequence> sequences, const Tensor& logits,
                              Launched& step) {
  // The others get its tokens.
  if (comm_.rank() != 0) return;
  make_masks(sequences, step);
  const UploadedMasks masks =
      masks_->upload(pool_, step.masks.rows, logits.dim(0), MaskChoice::kAll);
  if (step.shape.adjusts_logits) adjust(logits, step.shape, 0);
  ops::CudaSample args = sample_args(logits, 0);
  args.mask_rows = masks.rows;
  args.masks = masks.masks;
  library_.kernels().sample(gpu_->cuda(), args);
  if (!step.masks.take_all()) sample_again(args, step);
}

void GpuRunner::sample_again(ops::CudaSample args, Launched& step) {
  const size_t bytes = step.sampled.size() * sizeof(int32_t);
  const auto learn_ids = [&] {
    gpu_->copy_to_host(step.ids, sampled_ids_.data(), bytes);
    gpu_->synchronize();
  };
  step.masks.claim();
  learn_ids();
  step.masks.tell(step.ids, &pool_);
  if (!step.masks.has_refused()) return;
  const UploadedMasks masks =
      masks_->upload(pool_, step.masks.rows, args.rows, MaskChoice::kRefused);
  args.mask_rows = masks.rows;
  args.masks = masks.masks;
  args.kept_ids = args.out;
  library_.kernels().sample(gpu_->cuda(), args);
  learn_ids();
  step.masks.tell_again(step.ids);
}

int32_t* GpuRunner::sampled_ids() const {
  return reinterpret_cast<int32_t*>(sampled_ids_.data());
}

Tensor GpuRunner::sampled_ids_of(int64_t first, int64_t count) const {
  return {sampled_ids() + first, DType::kInt32, {1, count}};
}

void GpuRunner::gather_sampled(int64_t num_logits) {
  const int64_t each = RowShare::rows_each(num_logits, comm_.size());
  comm_.all_gather_columns(stream_, sampled_ids_of(comm_.rank() * each, each),
                           sampled_ids_of(0, each * comm_.size()));
}

bool GpuRunner::splits_logits(const Launched& step, int64_t num_logits) const {
  // With fewer the tokens' way to the other ranks takes longer than the logits'.
  constexpr int64_t kLeastRowsEach = 4;
  const int size = comm_.size();
  return size > 1 && comm_.splits_rows() && !step.wants_logits &&
         num_logits >= kLeastRowsEach * size && RowShare(num_logits, size - 1, size).size() > 0;
}

Tensor GpuRunner::run_output(ForwardBatch& forward, const Tensor& hidden, const Launched& step,
                             bool splits) {
  const StepShape& shape = step.shape;
  ForwardContext context{stream_, activation_dtype(options_), arena_, comm_, forward, splits};
  const Tensor logits = model_->compute_logits(context, hidden);
  if (step.has_masks) return logits;
  const int64_t first_row =
      splits ? RowShare(shape.num_logits, comm_.rank(), comm_.size()).begin : 0;
  sample(logits, shape, first_row);
  if (splits) gather_sampled(shape.num_logits);
  return logits;
}

Tensor GpuRunner::run_captured(ForwardBatch& forward, const Launched& step, bool splits) {
  const auto run = [&] { return run_output(forward, run_model(forward), step, splits); };
  const GraphKey key = {.rows = step.shape.num_seqs,
                        .table_width = step.shape.table_width,
                        .adjusts_logits = step.shape.adjusts_logits,
                        .splits_logits = splits,
                        .has_loras = lora_step_.has_value(),
                        .samples = !step.has_masks};
  Captured& captured = captured_[key];
  if (captured.graph == nullptr && captured.num_runs % kRunsBetweenCaptures == 1) {
    capture(run, captured);
  }
  if (captured.graph != nullptr) {
    try {
      gpu_->launch(*captured.graph);
      return captured.logits;
    } catch (const OutOfDeviceMemory&) {
      captured.graph.reset();
    }
  }
  // The first time, too: what kernels and libraries set up at their first use cannot be captured.
  const Tensor logits = run();
  ++captured.num_runs;
  return logits;
}

void GpuRunner::capture(const std::function<Tensor()>& run, Captured& captured) {
  const Arena::Scope scope(arena_);
  gpu_->begin_capture();
  try {
    captured.logits = run();
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
  settle(1);
  const std::vector<StepSequence> sequences = table_.apply(batch);
  const SamplingPlaces places = sampling_places(sequences);
  std::shared_ptr<Launched> step = describe(batch, sequences, places);
  if (sequences.empty()) return std::make_unique<FinishedStep>(std::move(step->output));
  if (batch.num_failed_steps < num_failed_steps_) {
    step = make_void(*step, {});
  } else {
    try {
      run(sequences, places, *step);
    } catch (const OutOfDeviceMemory& error) {
      // A mask that was told its token is told no other.
      if (comm_.size() > 1 || (step->has_masks && !step->masks.claim())) throw;
      step = make_void(*step, error.what());
      ++num_failed_steps_;
    }
  }
  // The engine waits for rank 0 and goes on at once, so that wait spins; the others may sleep.
  step->done = gpu_->record(comm_.rank() == 0 ? EventWait::kSpin : EventWait::kSleep);
  remember(sequences, step);
  return std::make_unique<Pending>(step);
}

void GpuRunner::run(std::span<const StepSequence> sequences, const SamplingPlaces& places,
                    Launched& step) {
  const Arena::Scope scope(arena_);
  const Tensor logits = compute(sequences, places, step);
  if (step.has_masks) sample_masked(sequences, logits, step);
  collect(sequences, logits, step);
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
    unsampled.index = sampled.index;
    unsampled.sequence = sampled.sequence;
  }
  result->results = step.results;
  result->ids = step.ids;
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
    const ScheduledSequence& chunk = sequences[i].chunk;
    const SequenceState& state = sequences[i].state;
    check(chunk.kind != ChunkKind::kVerify, "a GPU's chunks have no drafts");
    step->output.sequences[i].id = chunk.id;
    if (!chunk.samples) continue;
    const bool on_host = places.rows[step->sampled.size()] == SamplingPlace::kHost;
    step->wants_host |= on_host;
    const bool is_masked = !on_host && state.request->is_constrained;
    step->has_masks |= is_masked;
    step->wants_logits |= on_host || is_masked || state.params().logprobs.has_value();
    step->sampled.push_back({.id = chunk.id,
                             .index = state.output_token_ids.size(),
                             .sequence = i,
                             .on_host = on_host,
                             .is_masked = is_masked,
                             .num_logprobs = on_host ? std::nullopt : state.params().logprobs});
  }
  std::byte* const results = results_->data() + next_result_ * result_bytes();
  next_result_ = (next_result_ + 1) % StepInputs::kRing;
  step->results = results_;
  step->ids = reinterpret_cast<int32_t*>(results);
  step->logprobs = results + sizes_.sampled_ids;
  return step;
}

Tensor GpuRunner::compute(std::span<const StepSequence> sequences, const SamplingPlaces& places,
                          Launched& step) {
  const StepShape& largest = sizes_.largest_step;
  StepShape exact = step_shape(sequences, places, largest);
  std::vector<int32_t> row_slots;
  if (lora_slots_) row_slots = lora_slots_->place(sequences, exact.num_tokens, *gpu_, comm_);
  if (!row_slots.empty()) {
    exact.num_lora_items = lora_item_room(exact.num_tokens, options_.max_loras);
  }
  const std::vector<PromptRows> prompts = prompt_rows(sequences, largest.num_logits);
  if (!options_.enforce_eager && prompts.empty()) {
    if (const auto shape = captured_shape(exact, largest, options_.block_size)) {
      step.shape = *shape;
      if (!row_slots.empty()) {
        step.shape.num_lora_items = lora_item_room(shape->num_tokens, options_.max_loras);
      }
      ForwardBatch forward = upload(sequences, places, row_slots, step);
      return run_captured(forward, step, splits_logits(step, shape->num_logits));
    }
  }
  step.shape = exact;
  ForwardBatch forward = upload(sequences, places, row_slots, step);
  const Tensor hidden = run_model(forward);
  compute_prompt_logprobs(prompts, forward, hidden, step);
  if (exact.num_logits == 0) return {};
  return run_output(forward, hidden, step, splits_logits(step, exact.num_logits));
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
  for (size_t row = 0; row < step->sampled.size(); ++row) {
    sequences[step->sampled[row].sequence].state.output_token_ids.push_back(
        unknown_token(static_cast<int32_t>(row)));
  }
  in_flight_.push_back(step);
}

void GpuRunner::find_logprobs(const Tensor& logits, Launched& step) {
  LogprobsLayout& layout = step.logprobs_layout;
  bool wanted = false;
  for (const Launched::Sampled& sampled : step.sampled) {
    wanted |= sampled.num_logprobs.has_value();
    layout.num_top = std::max(layout.num_top, sampled.num_logprobs.value_or(0));
  }
  if (!wanted) return;
  layout.rows = static_cast<int64_t>(step.sampled.size());
  logprobs_.find(library_.kernels(), *gpu_, logits, sampled_ids(), layout, sample_scratch_.data(),
                 step.logprobs);
}

void GpuRunner::sample_on_host(std::span<const StepSequence> sequences, const Tensor& logits,
                               Launched& step) {
  gpu_->synchronize();
  settle(0);
  std::vector<size_t> on_host;
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    if (step.sampled[i].on_host) on_host.push_back(i);
  }
  for (size_t begin = 0; begin < on_host.size(); begin += kHostRows) {
    const size_t count = std::min(kHostRows, on_host.size() - begin);
    sample_on_host(sequences, logits, std::span(on_host).subspan(begin, count), step);
  }
}

void GpuRunner::sample_on_host(std::span<const StepSequence> sequences, const Tensor& logits,
                               std::span<const size_t> rows, Launched& step) {
  const auto width = static_cast<size_t>(logits.dim(1));
  std::vector<float> values(rows.size() * width);
  std::vector<LogitsRow> host_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto* from = logits.row<float>(static_cast<int64_t>(rows[i]));
    memory_->download(&values[i * width], reinterpret_cast<const std::byte*>(from),
                      width * sizeof(float));
    const SequenceState& state = sequences[step.sampled[rows[i]].sequence].state;
    host_rows.push_back({.state = &state, .num_tokens = state.tokens().size()});
  }
  const Tensor host_logits(values.data(), DType::kFloat32, {std::ssize(rows), logits.dim(1)});
  const std::vector<ops::SampledToken> tokens =
      sample_rows(host_stream_, host_logits, host_rows,
                  {options_.logits_processors.get(), options_.token_masks.get()});
  for (size_t i = 0; i < rows.size(); ++i) {
    step.ids[rows[i]] = tokens[i].token_id;
    if (tokens[i].logprobs.empty()) continue;
    step.output.sequences[step.sampled[rows[i]].sequence].logprobs = {
        to_token_logprobs(tokens[i].logprobs)};
  }
}

void GpuRunner::compute_prompt_logprobs(std::span<const PromptRows> prompts,
                                        const ForwardBatch& forward, const Tensor& hidden,
                                        Launched& step) {
  for (const PromptRows& prompt : prompts) {
    const auto num_rows = static_cast<int64_t>(prompt.targets.size());
    prompt_ids_.upload(*gpu_, prompt);
    const Arena::Scope scope(arena_);
    ForwardBatch part = forward;
    part.logits_rows = Tensor(prompt_ids_.rows(), DType::kInt32, {num_rows});
    ForwardContext context{stream_, activation_dtype(options_), arena_, comm_, part};
    const Tensor logits = model_->compute_logits(context, hidden);
    // Nobody reads those of the other ranks.
    if (comm_.rank() != 0) continue;
    const LogprobsLayout layout{num_rows, prompt.num_top};
    logprobs_.find(library_.kernels(), *gpu_, logits, prompt_ids_.targets(), layout,
                   sample_scratch_.data(), step.logprobs);
    gpu_->synchronize();
    std::vector<TokenLogprobs>& found = step.output.sequences[prompt.sequence].prompt_logprobs;
    for (int64_t row = 0; row < num_rows; ++row) {
      const int32_t target = prompt.targets[static_cast<size_t>(row)];
      found.push_back(GpuLogprobs::read(step.logprobs, layout, row, target, prompt.num_top));
    }
  }
}

}  // namespace quire
