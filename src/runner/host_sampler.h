#pragma once
// Samples on the host: applies each sequence's parameters, history, callbacks and constraint to its
// row of logits.
//
// Thread safety: a free function; one thread at a time on a stream.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/sampling.h"
#include "request/logits_processors.h"
#include "request/token_masks.h"
#include "runner/sequence_table.h"

namespace quire {

// A row of logits: for the token behind the first `num_tokens` tokens of a sequence.
struct LogitsRow {
  const SequenceState* state = nullptr;
  size_t num_tokens = 0;
  bool has_drafts = false;  // the last of these are drafts
};

// Callbacks and masks of requests, which only the engine's process has.
struct RequestHooks {
  const LogitsProcessorRegistry* processors = nullptr;  // null: no request has callbacks
  TokenMasks* masks = nullptr;                          // null: no request is constrained
};

// logits float32[R, vocab], changed in place; rows.size() == R.
std::vector<ops::SampledToken> sample_rows(Stream& stream, const Tensor& logits,
                                           std::span<const LogitsRow> rows,
                                           const RequestHooks& hooks);

// Samples drafts: guesses of what sample_rows() will give for the larger model's logits. Without
// callbacks and log-probabilities, and without effect on the answer. Token 0 where none can be
// chosen. logits float32[R, vocab], changed in place; rows.size() == ids.size() == R; `masks` may
// be null.
void sample_drafts(Stream& stream, const Tensor& logits, std::span<const LogitsRow> rows,
                   TokenMasks* masks, std::span<int32_t> ids);

}  // namespace quire
