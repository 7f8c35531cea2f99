#pragma once
// How a step on a GPU is laid out, and what is written into its arrays. It reads only the host's
// data.
//
// A step goes through here once: sampling_places() and step_shape() look at it to say how large its
// arrays are, captured_shape() whether a captured step does its work, fill_step() writes.
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runner/sequence_table.h"
#include "runner/step_inputs.h"

namespace quire {

// Where the token of a row of logits is sampled, and from what.
enum class SamplingPlace : uint8_t {
  kGpu,
  kGpuAdjusted,  // the GPU adjusts the logits first
  kHost,         // as needs_host_sampling() says, or without room for its biases (kMaxStepBiases)
};

struct SamplingPlaces {
  std::vector<SamplingPlace> rows;  // of logits
  bool adjusts_logits = false;      // some are kGpuAdjusted
  int64_t num_biases = 0;           // of these rows
};

SamplingPlaces sampling_places(std::span<const StepSequence> sequences);

// Rows that a captured step of `num_seqs` sequences is padded to: close together where a row more
// costs most. num_seqs >= 1.
int64_t padded_rows(int64_t num_seqs);

// The shape that holds this step and nothing else. As many leading decodes and verify chunks are
// cut into decode items as `largest` has room for.
StepShape step_shape(std::span<const StepSequence> sequences, const SamplingPlaces& places,
                     const StepShape& largest);

// The shape of the captured step that does the work of a step of shape `exact`, in which each
// sequence decodes or has drafts verified; nothing where there is no such step within `largest`.
std::optional<StepShape> captured_shape(const StepShape& exact, const StepShape& largest,
                                        int block_size);

// Fills a step's arrays, which are of `shape`: the step's own or that of a captured step.
void fill_step(std::span<const StepSequence> sequences, const SamplingPlaces& places,
               const StepShape& shape, const StepArrays& arrays, int block_size);

}  // namespace quire
