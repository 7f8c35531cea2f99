#pragma once
// The arrays of all passes of a drafter on a GPU over the sequences of a step, uploaded at once.
//
// Each pass has the arrays of a step (runner/step_inputs.h) but for block tables, which are those
// of the first. Passes of the same shapes have the same layout, so a captured graph finds its
// inputs. Thread safety: one thread, the rank's worker.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/device_library.h"
#include "runner/rank_runner.h"
#include "runner/step_inputs.h"

namespace quire {

struct GpuDraftArrays {
  std::vector<StepArrays> passes;
  // [tokens of the first pass]: slots of the cache where what is known of them lies; 0 for padding.
  int32_t* known_rows = nullptr;
};

// Sizes of a drafter, and what it takes of a GPU's memory beside weights, activations and cache.
struct GpuDraftSizes {
  StepShape largest_step;    // of what is read, and of a first pass
  int64_t max_drafting = 0;  // sequences that have drafts in a step
  int64_t max_passes = 0;
  int64_t attention_scratch = 0;  // bytes, as the rest
  int64_t decoder_scratch = 0;
  int64_t inputs = 0;
  int64_t alignment = 0;

  int64_t total() const { return attention_scratch + decoder_scratch + inputs + alignment; }
};

// `options` have a draft.
GpuDraftSizes gpu_draft_sizes(const ops::CudaKernels& kernels, const RunnerOptions& options);

// Sequences that have drafts in a step, at most.
int64_t max_drafting(const RunnerOptions& options);
// Ids of drafts of one pass are next to each other; those of the next follow at this distance.
int64_t draft_ids_stride(int64_t num_drafting);
// Ids that the drafts of a step take; 0 where options have no draft.
int64_t num_draft_ids(const RunnerOptions& options);

class GpuDraftInputs {
 public:
  GpuDraftInputs(DeviceLibrary& library, const Device& device, const GpuDraftSizes& sizes);

  // The host's arrays of passes of these shapes, whose table_width is the same, to be filled before
  // upload().
  GpuDraftArrays next(std::span<const StepShape> shapes);
  // Queues the copy of the arrays that next() returned. Returns the arrays on the GPU.
  GpuDraftArrays upload(DeviceStream& stream);

 private:
  // How many passes may be queued before the host waits for a copy.
  static constexpr size_t kRing = 4;

  struct Place {
    std::unique_ptr<PinnedBuffer> memory;
    std::unique_ptr<DeviceEvent> copied;  // null: nothing is on its way
  };

  std::array<Place, kRing> ring_;
  size_t current_ = 0;
  std::vector<StepShape> shapes_;
  Buffer device_;
};

}  // namespace quire
