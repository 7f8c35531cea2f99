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

// Those of one step. Thread safety: rows and ids belong to the rank's worker until its next step;
// then two threads may want the masks to be told, the worker and the one that waits for the step's
// result, and one of them does it:
//
//   if (masks.claim()) { wait for the GPU; masks.tell(pool); } else { masks.wait_until_told(); }
class StepMasks {
 public:
  struct Row {
    size_t row = 0;                 // of logits
    std::unique_ptr<RowMask> mask;  // null: any token may come
  };
  std::vector<Row> rows;
  // By row of logits, to be read when the GPU is done: the tokens, and those that were sampled
  // first, before some rows had to take another one. Pinned.
  const int32_t* ids = nullptr;
  const int32_t* first_ids = nullptr;

  // Whether the caller is the one who tells the masks; it must then call tell() or give_up().
  bool claim();
  // Tells each mask what was sampled, with the pool's threads where there is one.
  void tell(ThreadPool* pool);
  // The step failed.
  void give_up();
  // Returns when another thread has told them. Throws Error where it has given up.
  void wait_until_told();

 private:
  enum class Progress { kNotClaimed, kClaimed, kTold, kGivenUp };

  void tell(Row& row) const;
  void set(Progress progress);

  std::atomic<Progress> progress_ = Progress::kNotClaimed;
};

// Where a GPU finds the masks of a step, as CudaSample takes them.
struct UploadedMasks {
  const int32_t* rows = nullptr;
  // Narrower masks for those of the rows that may sample a token that leaves no time to end; null:
  // there are none.
  const int32_t* rows_in_time = nullptr;
  const uint32_t* masks = nullptr;
};

// The memory of a rank's masks, and the way to its GPU. Thread safety: the rank's worker.
class GpuMasks {
 public:
  // For steps of at most `max_rows` rows of logits.
  GpuMasks(DeviceLibrary& library, const Device& device, int64_t max_rows, int64_t vocab);

  // On the GPU.
  static size_t bytes(int64_t max_rows, int64_t vocab);

  // Copies the masks of a step with `num_rows` rows of logits beside what the GPU does, and returns
  // when they are there. Those of the step before are overwritten.
  UploadedMasks upload(ThreadPool& pool, std::span<const StepMasks::Row> rows, int64_t num_rows);

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
