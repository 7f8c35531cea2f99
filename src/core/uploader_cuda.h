#pragma once
// Copies to a GPU through pinned memory: many threads write pieces, the copy engine moves them.
//
// Pageable memory would be copied twice, by one thread. Pinning takes time, too (registering huge
// pages half as long as cudaHostAlloc), so a slot is pinned only when a thread finds none free:
// copies begin early, and a small model pins little. Copies come after everything that was queued
// on the device's default stream before them.
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
  // Pieces up to this size are written straight into pinned memory by `fill`; larger ones take one
  // copy more.
  static constexpr size_t kSlotBytes = size_t{2} << 20;

  explicit Uploader(int device_index);
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  // Calls fill(from), which writes `bytes` bytes, and queues their copy to `to` on the device. Does
  // not throw, because loops over threads call it: finish() throws instead.
  void upload(std::byte* to, size_t bytes,
              const std::function<void(std::byte* from)>& fill) noexcept;
  // Returns when all copies are done, and frees the pinned memory. Throws the first failure since
  // the last call.
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
  // A slot that no thread uses, though its last copy may still run. release() gives it back.
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
