#pragma once
// Samples on the host: each sequence's parameters, history and callbacks applied to its row of
// logits.
//
// Thread safety: a free function; one thread at a time on a stream.
#include <cstddef>
#include <span>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/sampling.h"
#include "request/logits_processors.h"
#include "runner/sequence_table.h"

namespace quire {

// A row of logits: of the token behind the first `num_tokens` of a sequence.
struct LogitsRow {
  const SequenceState* state = nullptr;
  size_t num_tokens = 0;
};

// logits float32[R, vocab], changed in place; rows.size() == R. `processors` has the callbacks of
// requests that have some; null: of none.
std::vector<ops::SampledToken> sample_rows(Stream& stream, const Tensor& logits,
                                           std::span<const LogitsRow> rows,
                                           const LogitsProcessorRegistry* processors);

}  // namespace quire
