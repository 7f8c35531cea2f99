#pragma once
// What a step on a GPU is laid out as and filled with, from the host's data alone.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <map>
#include <optional>

#include "core/forward_batch.h"
#include "request/scheduled_batch.h"
#include "runner/sequence_table.h"
#include "runner/step_inputs.h"

namespace quire {

// Rows that a captured step of `num_seqs` sequences is padded to: close together where a row more
// costs most. num_seqs >= 1.
int64_t padded_rows(int64_t num_seqs);

// The shape of the captured step that does this batch's work: in which each sequence has one token
// and samples, and none is new. Nothing where there is no such step within `largest`.
std::optional<StepShape> captured_shape(const ScheduledBatch& batch, const ForwardBatch& host,
                                        const StepShape& largest, int block_size);

// Fills a step's arrays, padded to `shape`, which holds `host`. `last_rows` says where the ids are
// that the step before sampled, of sequences whose newest token the host does not know. Returns
// how many leading sequences are cut into decode items.
int64_t fill_step(const ScheduledBatch& batch, const ForwardBatch& host, const SequenceTable& table,
                  const std::map<SequenceId, int32_t>& last_rows, const StepShape& shape,
                  const StepArrays& arrays);

}  // namespace quire
