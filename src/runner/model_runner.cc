#include "runner/model_runner.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "ops/sampling.h"
#include "runner/host_sampler.h"
#include "runner/prompt_logprobs.h"
#include "runner/sampling_rows.h"
#include "runner/stage_drafts.h"
#include "runner/synthetic_drafts.h"

namespace quire {
namespace {

ModelOptions part_of(const ModelOptions& model, const RankGroups& groups) {
  ModelOptions part = stage_of_model(model, groups.stage());
  part.rank = groups.tensor.rank();
  part.size = groups.tensor.size();
  return part;
}

// Which token each row of logits is for, in the order of ForwardBatch::logits_rows.
std::vector<LogitsRow> logits_rows_of(std::span<const StepSequence> sequences) {
  std::vector<LogitsRow> rows;
  for (const StepSequence& sequence : sequences) {
    const size_t num_tokens = sequence.state.tokens().size();
    for (int64_t left = sequence.chunk.num_logits_rows(); left > 0; --left) {
      rows.push_back({.state = &sequence.state,
                      .num_tokens = num_tokens - static_cast<size_t>(left - 1),
                      .has_drafts = left < sequence.chunk.num_logits_rows()});
    }
  }
  return rows;
}

}  // namespace

ModelRunner::ModelRunner(const RunnerOptions& options, const RankGroups& groups, Stream& stream)
    : options_(options),
      groups_(groups),
      stream_(stream),
      model_(create_model(part_of(options.model, groups))),
      kv_cache_(model_->kv_cache_shape(), options.kv_cache_dtype, options.block_size,
                options.num_blocks),
      arena_(Buffer(CountedModel(part_of(options.model, groups))
                        .activation_bytes(options.max_tokens, options.max_logits_rows))),
      table_(options.eos_token_ids),
      builder_(options.block_size) {
  model_->bind_cache(stream_, groups_.tensor, kv_cache_.layers());
  stream_.scratch(static_cast<size_t>(options.scratch_bytes));
  const bool has_head = options.draft && options.draft->model.eagle;
  if (has_head) taps_.emplace(options, groups_, stream_);
  if (has_head && groups_.is_first_stage()) {
    eagle_.emplace(options, *model_, groups_.tensor, stream_);
  } else if (options.draft && groups_.is_first_stage()) {
    draft_model_.emplace(options, groups_.tensor, stream_);
  }
  if (options.max_loras > 0) {
    lora_slots_.emplace(*model_, options.max_loras, options.max_lora_rank, options.model.dtype,
                        stream_.pool());
  }
}

void ModelRunner::load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) {
  if (options_.load_format == LoadFormat::kDummy) {
    fill_dummy_weights(model_->parameters(), options_.seed, stream_.pool(), on_progress);
  } else {
    check(checkpoint != nullptr, "weights are loaded from a checkpoint");
    load_weights(*checkpoint, model_->parameters(), stream_.pool(), on_progress);
  }
  if (draft_model_) draft_model_->load(on_progress);
  if (eagle_) eagle_->load(on_progress);
}

std::unique_ptr<PendingStep> ModelRunner::launch(const ScheduledBatch& batch) {
  return std::make_unique<FinishedStep>(execute(batch));
}

StepOutput ModelRunner::execute(const ScheduledBatch& batch) {
  StepOutput output;
  output.step = batch.step;
  learn_sampled(batch);
  const std::vector<StepSequence> sequences = table_.apply(batch);
  if (sequences.empty()) return output;

  make_drafts(batch, sequences, output);
  const ForwardBatch forward = builder_.build(sequences);
  lora_ = lora_slots_ ? lora_slots_->prepare(sequences, forward.num_tokens) : nullptr;
  const Arena::Scope scope(arena_);
  const Tensor hidden = run_layers(forward).hidden;
  if (groups_.is_first_stage() && taps_) {
    keep_taps(forward, sequences, batch.drafter_reads_prompts);
    if (groups_.is_last_stage()) output.draft_reading_s += std::exchange(read_s_, 0);
  }

  output.sequences.resize(batch.sequences.size());
  for (size_t i = 0; i < batch.sequences.size(); ++i)
    output.sequences[i].id = batch.sequences[i].id;
  if (!groups_.is_last_stage()) {
    if (!groups_.is_first_stage() && taps_) taps_->send();
    await_sampled(sequences);
    return output;
  }
  compute_prompt_logprobs(forward, hidden, sequences, output);
  std::vector<int32_t> sampled_ids(static_cast<size_t>(forward.logits_rows.num_elements()));
  const std::vector<ops::SampledToken> sampled = sample(forward, hidden, sequences, sampled_ids);
  if (options_.synthetic_acceptance) replace_by_synthetic(sequences, sampled_ids);
  if (!groups_.is_first_stage()) {
    send_sampled_ids(sampled_ids);
    if (taps_) taps_->send();
  }
  keep_sampled(sequences, sampled_ids, sampled, output);
  return output;
}

void ModelRunner::make_drafts(const ScheduledBatch& batch, std::span<const StepSequence> sequences,
                              StepOutput& output) {
  if (!options_.draft) {
    for (const ScheduledSequence& chunk : batch.sequences) {
      check(std::ranges::count(chunk.draft_token_ids, kDraftOfRunner) == 0,
            "drafts have ids where no draft model makes them");
    }
    return;
  }
  DraftTimes times;
  if (groups_.is_first_stage()) {
    times =
        draft_model_ ? draft_model_->make_drafts(batch, sequences) : eagle_->make_drafts(sequences);
    times.reading_s += std::exchange(read_s_, 0);
    if (!groups_.is_last_stage()) send_drafts(sequences, times);
  } else if (groups_.is_last_stage()) {
    times = receive_drafts(sequences);
  }
  output.draft_s = times.drafting_s;
  output.draft_reading_s = times.reading_s;
}

void ModelRunner::send_drafts(std::span<const StepSequence> sequences, const DraftTimes& times) {
  std::vector<int32_t> packed = pack_drafts(sequences, times);
  groups_.pipeline.send(stream_, as_tensor(packed), groups_.pipeline.size() - 1);
}

DraftTimes ModelRunner::receive_drafts(std::span<const StepSequence> sequences) {
  std::vector<int32_t> packed = room_for_drafts(sequences);
  receive(as_tensor(packed), 0);
  return unpack_drafts(packed, sequences);
}

void ModelRunner::keep_taps(const ForwardBatch& forward, std::span<const StepSequence> sequences,
                            bool reads_prompts) {
  taps_->hold(forward, sequences, reads_prompts);
  if (groups_.is_last_stage()) keep_oldest_taps();
}

void ModelRunner::keep_oldest_taps() {
  StageTaps::Step step =
      taps_->take([this](const Tensor& tensor, int stage) { receive(tensor, stage); });
  eagle_->keep(step.states, step.slots);
  read_s_ += eagle_->read_prompts(find_prompts(step.prompts, table_));
  taps_->give_back(std::move(step));
}

IntermediateTensors ModelRunner::run_layers(const ForwardBatch& forward) {
  std::optional<IntermediateTensors> previous;
  if (!groups_.is_first_stage()) {
    const int before = groups_.stage() - 1;
    const auto shape = {forward.num_tokens, options_.model.config.hidden_size};
    previous = {.hidden = arena_.allocate(DType::kFloat32, shape),
                .residual = arena_.allocate(DType::kFloat32, shape)};
    receive(previous->hidden, before);
    receive(previous->residual, before);
  }
  ForwardContext context{stream_, DType::kFloat32, arena_, groups_.tensor, forward};
  context.lora = lora_;
  if (taps_) context.aux = taps_->states_of(forward.num_tokens);
  const IntermediateTensors state = model_->forward(context, previous);
  if (!groups_.is_last_stage()) {
    const int next = groups_.stage() + 1;
    groups_.pipeline.send(stream_, state.hidden, next);
    groups_.pipeline.send(stream_, state.residual, next);
  }
  return state;
}

void ModelRunner::receive(const Tensor& tensor, int from) {
  const auto begin = std::chrono::steady_clock::now();
  groups_.pipeline.receive(stream_, tensor, from);
  waited_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void ModelRunner::send_sampled_ids(std::vector<int32_t>& ids) {
  if (!ids.empty()) groups_.pipeline.send(stream_, as_tensor(ids), 0);
}

void ModelRunner::await_sampled(std::span<const StepSequence> sequences) {
  std::vector<AwaitedIds> step;
  for (const StepSequence& sequence : sequences) {
    if (!sequence.chunk.samples) continue;
    sequence.state.output_token_ids.push_back(unknown_token(0));
    step.push_back({sequence.chunk.id, sequence.state.serial,
                    static_cast<size_t>(sequence.chunk.num_logits_rows())});
  }
  if (groups_.is_first_stage() && (taps_ || !step.empty())) awaited_.push_back(std::move(step));
}

void ModelRunner::learn_sampled(const ScheduledBatch& batch) {
  if (groups_.is_last_stage()) return;
  if (!groups_.is_first_stage()) return table_.cut_to_computed(batch);
  for (const ScheduledSequence& chunk : batch.sequences) {
    const SequenceState* state = table_.find(chunk.id);
    while (state != nullptr && state->awaits_token()) receive_oldest_step();
  }
  // Results of steps this far back were processed before this step was scheduled.
  while (std::ssize(awaited_) > groups_.pipeline.size() + 1) receive_oldest_step();
}

void ModelRunner::receive_oldest_step() {
  check(!awaited_.empty(), "what a step has sampled is awaited");
  const std::vector<AwaitedIds> step = std::move(awaited_.front());
  awaited_.pop_front();
  size_t num_ids = 0;
  for (const AwaitedIds& sequence : step) num_ids += sequence.count;
  std::vector<int32_t> ids(num_ids);
  if (num_ids > 0) receive(as_tensor(ids), groups_.pipeline.size() - 1);
  std::span<const int32_t> rest = ids;
  for (const AwaitedIds& sequence : step) {
    table_.take_sampled(sequence.sequence, sequence.serial, rest.first(sequence.count));
    rest = rest.subspan(sequence.count);
  }
  if (taps_) keep_oldest_taps();
}

Tensor ModelRunner::logits_of(const ForwardBatch& forward, const Tensor& hidden,
                              const Tensor& rows) {
  ForwardBatch part = forward;
  part.logits_rows = rows;
  ForwardContext context{stream_, DType::kFloat32, arena_, groups_.tensor, part};
  context.lora = lora_;
  return model_->compute_logits(context, hidden);
}

std::vector<ops::SampledToken> ModelRunner::sample(const ForwardBatch& forward,
                                                   const Tensor& hidden,
                                                   std::span<const StepSequence> sequences,
                                                   std::vector<int32_t>& ids) {
  std::vector<ops::SampledToken> sampled;
  if (ids.empty()) return sampled;
  const std::vector<LogitsRow> rows = logits_rows_of(sequences);
  for (size_t begin = 0; begin < rows.size();) {
    const size_t end = std::min(rows.size(), begin + static_cast<size_t>(options_.max_logits_rows));
    const Arena::Scope scope(arena_);
    const Tensor logits =
        logits_of(forward, hidden,
                  forward.logits_rows.rows(static_cast<int64_t>(begin), static_cast<int64_t>(end)));
    if (groups_.tensor.rank() == 0) {
      auto part = sample_rows(stream_, logits, std::span(rows).subspan(begin, end - begin),
                              {options_.logits_processors.get(), options_.token_masks.get()});
      // A token that could not be chosen is a 0 to the ranks; keep_sampled() reports it.
      for (size_t i = begin; i < end; ++i) ids[i] = std::max(part[i - begin].token_id, 0);
      sampled.insert(sampled.end(), std::make_move_iterator(part.begin()),
                     std::make_move_iterator(part.end()));
    }
    begin = end;
  }
  groups_.tensor.broadcast(stream_, as_tensor(ids), 0);
  return sampled;
}

void ModelRunner::replace_by_synthetic(std::span<const StepSequence> sequences,
                                       std::span<int32_t> ids) {
  size_t row = 0;
  for (const StepSequence& sequence : sequences) {
    const auto num_rows = static_cast<size_t>(sequence.chunk.num_logits_rows());
    if (num_rows > 1) {
      keep_synthetically(*options_.synthetic_acceptance, sequence.state,
                         ids.subspan(row, num_rows));
    }
    row += num_rows;
  }
}

void ModelRunner::keep_sampled(std::span<const StepSequence> sequences,
                               std::span<const int32_t> ids,
                               std::span<const ops::SampledToken> sampled, StepOutput& output) {
  size_t row = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto num_rows = static_cast<size_t>(sequences[i].chunk.num_logits_rows());
    if (num_rows == 0) continue;
    const size_t num_kept = sequences[i].state.append_sampled(ids.subspan(row, num_rows));
    SequenceOutput& sequence = output.sequences[i];
    for (size_t kept = row; kept < row + num_kept && !sequence.invalid_logits; ++kept) {
      sequence.token_ids.push_back(ids[kept]);
      sequence.invalid_logits = kept < sampled.size() && sampled[kept].token_id == ops::kNoToken;
      if (kept < sampled.size() && !sampled[kept].logprobs.empty()) {
        sequence.logprobs.push_back(to_token_logprobs(sampled[kept].logprobs));
      }
    }
    row += num_rows;
  }
}

void ModelRunner::compute_prompt_logprobs(const ForwardBatch& forward, const Tensor& hidden,
                                          std::span<const StepSequence> sequences,
                                          StepOutput& output) {
  for (const PromptRows& prompt : prompt_rows(sequences, options_.max_logits_rows)) {
    std::vector<int32_t> rows(prompt.targets.size());
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(prompt.first_row));
    const Arena::Scope scope(arena_);
    const Tensor logits = logits_of(forward, hidden, as_tensor(rows));
    if (groups_.tensor.rank() != 0) continue;
    std::vector<std::vector<ops::TokenLogprob>> found(rows.size());
    ops::token_logprobs(stream_, logits, prompt.targets, prompt.num_top, found);
    for (const auto& position : found) {
      output.sequences[prompt.sequence].prompt_logprobs.push_back(to_token_logprobs(position));
    }
  }
}

}  // namespace quire
