#pragma once
// The masks of a step's rows that a GPU samples: made on the host while the GPU runs the model, and
// told what was sampled once the step is done.
//
// A mask depends on all tokens before it, so it is made when those of the step before are known.
// The GPU has the step's model to run by then, and gets the masks in time for its logits.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/device_library.h"
#include "request/token_masks.h"

namespace quire {

// Those of one step. Thread safety: rows belong to the rank's worker until its next step; then two
// threads may want the masks to be told, the worker and the one that waits for the step's result,
// and one of them does it:
//
//   if (masks.claim()) { wait for the GPU; masks.tell(ids, pool); } else { masks.wait_until_told();
//   }
class StepMasks {
 public:
  struct Row {
    size_t row = 0;                 // of logits
    std::unique_ptr<RowMask> mask;  // null: any token may come
    bool has_refused = false;       // what was sampled, and has become narrower
  };
  std::vector<Row> rows;

  // Whether no mask will refuse what is sampled.
  bool take_all() const;
  bool has_refused() const;

  // Whether the caller is the one who tells the masks; it must then call tell() or give_up().
  bool claim();
  // Tells each mask its token of `ids`, by row of logits, with the pool's threads where there is
  // one. Those that refuse it are told once more, with tell_again().
  void tell(const int32_t* ids, ThreadPool* pool);
  void tell_again(const int32_t* ids);
  // The step failed.
  void give_up();
  // Returns when another thread has told them. Throws Error where it has given up.
  void wait_until_told();

 private:
  enum class Progress { kNotClaimed, kClaimed, kTold, kGivenUp };

  void set(Progress progress);

  std::atomic<Progress> progress_ = Progress::kNotClaimed;
};

// Where a GPU finds the masks of a step, as CudaSample takes them.
struct UploadedMasks {
  const int32_t* rows = nullptr;
  const uint32_t* masks = nullptr;
};

// Which of a step's masks.
enum class MaskChoice { kAll, kRefused };

// The memory of a rank's masks, and the way to its GPU. Thread safety: the rank's worker.
class GpuMasks {
 public:
  // For steps of at most `max_rows` rows of logits.
  GpuMasks(DeviceLibrary& library, const Device& device, int64_t max_rows, int64_t vocab);

  // On the GPU.
  static size_t bytes(int64_t max_rows, int64_t vocab);

  // Copies masks of a step with `num_rows` rows of logits beside what the GPU does, and returns
  // when they are there. Those before are overwritten.
  UploadedMasks upload(ThreadPool& pool, std::span<const StepMasks::Row> rows, int64_t num_rows,
                       MaskChoice choice);

 private:
  struct Arrays;
  static Arrays lay_out(std::byte* base, int64_t max_rows, int64_t vocab);

  int64_t max_rows_;
  int64_t vocab_;
  std::unique_ptr<DeviceStream> copies_;
  std::unique_ptr<PinnedBuffer> pinned_;
  Buffer device_;
};

}  // namespace quire
