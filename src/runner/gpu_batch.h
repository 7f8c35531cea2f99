#pragma once
// What a step on a GPU is laid out as and filled with, from the host's data alone.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/forward_batch.h"
#include "request/scheduled_batch.h"
#include "runner/sequence_table.h"
#include "runner/step_inputs.h"

namespace quire {

// Rows that a captured step of `num_seqs` sequences is padded to: close together where a row more
// costs most. num_seqs >= 1.
int64_t padded_rows(int64_t num_seqs);

// The shape of the captured step that does this batch's work, in which each sequence decodes.
// Nothing where there is no such step within `largest`. Whether logits are adjusted is left to the
// caller.
std::optional<StepShape> captured_shape(const ScheduledBatch& batch, const ForwardBatch& host,
                                        const StepShape& largest, int block_size);

// Where the token of a row of logits is sampled, and from what.
enum class SamplingPlace : uint8_t {
  kGpu,
  kGpuAdjusted,  // the GPU adjusts the logits first
  kHost,         // as needs_host_sampling() says, or without room for its biases (kMaxStepBiases)
};

// One for each sequence that samples.
std::vector<SamplingPlace> sampling_places(const ScheduledBatch& batch, const SequenceTable& table);

// Fills a step's arrays, padded to `shape`, which holds `host`. `last_rows` says where the ids are
// that the step before sampled, of sequences whose newest token the host does not know. Returns
// how many leading sequences are cut into decode items.
int64_t fill_step(const ScheduledBatch& batch, const ForwardBatch& host, const SequenceTable& table,
                  const std::map<SequenceId, int32_t>& last_rows, const StepShape& shape,
                  const StepArrays& arrays);

}  // namespace quire
