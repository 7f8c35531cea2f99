#include "runner/model_runner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "loader/weight_loader.h"
#include "models/registry.h"
#include "ops/sampling.h"
#include "runner/sampler.h"

namespace quire {
namespace {

ModelOptions for_rank(ModelOptions options, const Communicator& comm) {
  options.rank = comm.rank();
  options.size = comm.size();
  return options;
}

}  // namespace

ModelRunner::ModelRunner(const RunnerOptions& options, Communicator& comm, Stream& stream)
    : options_(options),
      comm_(comm),
      stream_(stream),
      model_(create_model(for_rank(options.model, comm))),
      kv_cache_(model_kv_cache_shape(for_rank(options.model, comm)), options.kv_cache_dtype,
                options.block_size, options.num_blocks),
      arena_(Buffer(model_arena_bytes(for_rank(options.model, comm), options.max_tokens,
                                      options.max_logits_rows))),
      table_(options.eos_token_ids),
      builder_(options.block_size) {
  model_->bind_cache(stream_, comm_, kv_cache_.layers());
}

void ModelRunner::load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) {
  if (options_.load_format == LoadFormat::kDummy) {
    fill_dummy_weights(model_->parameters(), options_.seed, stream_.pool(), on_progress);
  } else {
    check(checkpoint != nullptr, "weights are loaded from a checkpoint");
    load_weights(*checkpoint, model_->parameters(), stream_.pool(), on_progress);
  }
}

std::unique_ptr<PendingStep> ModelRunner::launch(const ScheduledBatch& batch) {
  return std::make_unique<FinishedStep>(execute(batch));
}

StepOutput ModelRunner::execute(const ScheduledBatch& batch) {
  StepOutput output;
  output.step = batch.step;
  table_.apply(batch);
  if (batch.sequences.empty()) return output;

  const ForwardBatch forward = builder_.build(batch, table_);
  const Arena::Scope scope(arena_);
  ForwardContext context{stream_, DType::kFloat32, arena_, comm_, forward};
  const Tensor hidden = model_->forward(context, std::nullopt).hidden;

  output.sequences.resize(batch.sequences.size());
  for (size_t i = 0; i < batch.sequences.size(); ++i)
    output.sequences[i].id = batch.sequences[i].id;
  compute_prompt_logprobs(forward, hidden, batch, output);
  sample_tokens(forward, hidden, batch, output);
  return output;
}

Tensor ModelRunner::logits_of(const ForwardBatch& forward, const Tensor& hidden,
                              const Tensor& rows) {
  ForwardBatch part = forward;
  part.logits_rows = rows;
  ForwardContext context{stream_, DType::kFloat32, arena_, comm_, part};
  return model_->compute_logits(context, hidden);
}

void ModelRunner::sample_tokens(const ForwardBatch& forward, const Tensor& hidden,
                                const ScheduledBatch& batch, StepOutput& output) {
  std::vector<size_t> sampling;  // indices into batch.sequences
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    if (batch.sequences[i].samples) sampling.push_back(i);
  }
  if (sampling.empty()) return;

  std::vector<int32_t> sampled_ids(sampling.size(), 0);
  for (size_t begin = 0; begin < sampling.size();) {
    const size_t end =
        std::min(sampling.size(), begin + static_cast<size_t>(options_.max_logits_rows));
    const Arena::Scope scope(arena_);
    const Tensor logits =
        logits_of(forward, hidden,
                  forward.logits_rows.rows(static_cast<int64_t>(begin), static_cast<int64_t>(end)));
    if (comm_.rank() == 0) {
      std::vector<const SequenceState*> states;
      for (size_t i = begin; i < end; ++i) {
        states.push_back(&table_.at(batch.sequences[sampling[i]].id));
      }
      std::vector<ops::SampledToken> tokens = sample_next_tokens(stream_, logits, states);
      for (size_t i = begin; i < end; ++i) {
        ops::SampledToken& token = tokens[i - begin];
        SequenceOutput& sequence = output.sequences[sampling[i]];
        sequence.token_id = token.token_id;
        sequence.logprobs = to_token_logprobs(token.logprobs);
        sampled_ids[i] = token.token_id;
      }
    }
    begin = end;
  }
  comm_.broadcast(stream_, as_tensor(sampled_ids), 0);
  for (size_t i = 0; i < sampling.size(); ++i) {
    table_.append_token(batch.sequences[sampling[i]].id, sampled_ids[i]);
  }
}

void ModelRunner::compute_prompt_logprobs(const ForwardBatch& forward, const Tensor& hidden,
                                          const ScheduledBatch& batch, StepOutput& output) {
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ScheduledSequence& scheduled = batch.sequences[i];
    const SequenceState& state = table_.at(scheduled.id);
    if (!state.params->prompt_logprobs) continue;
    // The row of position p predicts token p + 1, which has to be one of the prompt.
    const int64_t first = scheduled.num_computed_tokens;
    const int64_t last = std::min(first + scheduled.num_tokens, state.num_prompt_tokens - 1);
    const int32_t first_row = forward.query_start.data<int32_t>()[i];
    for (int64_t begin = first; begin < last;) {
      const int64_t end = std::min(last, begin + options_.max_logits_rows);
      const auto num_rows = static_cast<size_t>(end - begin);
      std::vector<int32_t> rows(num_rows);
      std::iota(rows.begin(), rows.end(), first_row + static_cast<int32_t>(begin - first));
      const Arena::Scope scope(arena_);
      const Tensor logits = logits_of(forward, hidden, as_tensor(rows));
      if (comm_.rank() == 0) {
        const auto targets =
            std::span(state.token_ids).subspan(static_cast<size_t>(begin + 1), num_rows);
        std::vector<std::vector<ops::TokenLogprob>> found(num_rows);
        ops::token_logprobs(stream_, logits, targets, *state.params->prompt_logprobs, found);
        for (const auto& position : found) {
          output.sequences[i].prompt_logprobs.push_back(to_token_logprobs(position));
        }
      }
      begin = end;
    }
  }
}

}  // namespace quire
