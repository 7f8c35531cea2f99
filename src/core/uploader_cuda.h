#pragma once
// Copies to a GPU through pinned memory: many threads write pieces, the copy engine moves them.
//
// Pageable memory would be copied twice, by one thread. Pinning takes time too (registering huge
// pages less than cudaHostAlloc, by a factor of two), so slots are pinned as threads find none
// free: while the first ones are pinned nothing else is lost, and a small model pins little. Copies
// are ordered after what was queued on the device's default stream before them.
//
// Thread safety: upload() from any number of threads; finish() from one, when none is in upload().
#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace quire {

class Uploader {
 public:
  // `fill` writes a piece of this size or less straight into pinned memory; larger ones take a copy
  // more.
  static constexpr size_t kSlotBytes = size_t{2} << 20;

  explicit Uploader(int device_index);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // Has fill(from) write `bytes` bytes and queues their copy to `to`, on the device. Does not
  // throw, for the sake of loops over threads: finish() does.
  void upload(std::byte* to, size_t bytes,
              const std::function<void(std::byte* from)>& fill) noexcept;
  // Returns when all copies are done, and gives the pinned memory back. Throws what went wrong
  // since the last call.
  void finish();

 private:
  struct Slot {
    explicit Slot(std::byte* unpinned);
    ~Slot();
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;

    std::byte* memory;
    cudaEvent_t copied = nullptr;
  };

  void copy(std::byte* to, size_t bytes, const std::function<void(std::byte* from)>& fill);
  // A slot that no thread uses, though its last copy may be under way; release() gives it back.
  Slot* acquire();
  void release(Slot* slot, bool is_copying);

  int device_index_;
  cudaStream_t stream_ = nullptr;
  void* mapping_ = nullptr;

  std::mutex mutex_;
  std::condition_variable released_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::byte*> unpinned_;  // memory for slots that are still to be made
  std::vector<Slot*> free_;
  std::deque<Slot*> copying_;  // oldest first
  std::exception_ptr error_;   // the first
};

}  // namespace quire
