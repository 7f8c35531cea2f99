#include "core/uploader_cuda.h"

#include <algorithm>
#include <cstring>

#include "core/check_cuda.h"

namespace quire {
namespace {

// Enough for two slots a thread on a large machine: one that is written, one that is copied.
constexpr size_t kMaxSlots = 48;

}  // namespace

Uploader::Slot::Slot() {
  void* pinned = nullptr;
  check_cuda(cudaHostAlloc(&pinned, kSlotBytes, cudaHostAllocDefault), "pinning host memory");
  memory = static_cast<std::byte*>(pinned);
  const cudaError_t status = cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);
  if (status != cudaSuccess) cudaFreeHost(pinned);
  check_cuda(status, "making an event");
}

Uploader::Slot::~Slot() {
  // What fails here has failed before: the context is lost.
  cudaEventDestroy(copied);
  cudaFreeHost(memory);
}

Uploader::Uploader(int device_index) : device_index_(device_index) {
  check_cuda(cudaSetDevice(device_index), "selecting the device");
  // Not a non-blocking stream: copies wait for the default stream.
  check_cuda(cudaStreamCreate(&stream_), "making a stream");
}

Uploader::~Uploader() {
  cudaStreamSynchronize(stream_);
  slots_.clear();
  cudaStreamDestroy(stream_);
}

void Uploader::upload(std::byte* to, size_t bytes,
                      const std::function<void(std::byte* from)>& fill) noexcept {
  try {
    check_cuda(cudaSetDevice(device_index_), "selecting the device");
    if (bytes <= kSlotBytes) {
      copy(to, bytes, fill);
      return;
    }
    std::vector<std::byte> whole(bytes);
    fill(whole.data());
    for (size_t begin = 0; begin < bytes; begin += kSlotBytes) {
      const size_t length = std::min(kSlotBytes, bytes - begin);
      copy(to + begin, length,
           [&](std::byte* from) { std::memcpy(from, whole.data() + begin, length); });
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void Uploader::copy(std::byte* to, size_t bytes, const std::function<void(std::byte* from)>& fill) {
  Slot* slot = acquire();
  bool is_copying = false;
  try {
    check_cuda(cudaEventSynchronize(slot->copied), "copying weights to the GPU");
    fill(slot->memory);
    check_cuda(cudaMemcpyAsync(to, slot->memory, bytes, cudaMemcpyHostToDevice, stream_),
               "copying weights to the GPU");
    check_cuda(cudaEventRecord(slot->copied, stream_), "recording an event");
    is_copying = true;
  } catch (...) {
    release(slot, is_copying);
    throw;
  }
  release(slot, is_copying);
}

Uploader::Slot* Uploader::acquire() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!free_.empty()) {
      Slot* slot = free_.back();
      free_.pop_back();
      return slot;
    }
    const bool is_full = num_slots_ == kMaxSlots;
    if (!copying_.empty() && (is_full || cudaEventQuery(copying_.front()->copied) == cudaSuccess)) {
      Slot* slot = copying_.front();
      copying_.pop_front();
      return slot;
    }
    if (!is_full) break;
    released_.wait(lock);
  }
  ++num_slots_;
  lock.unlock();
  std::unique_ptr<Slot> slot;
  try {
    slot = std::make_unique<Slot>();
  } catch (...) {
    lock.lock();
    --num_slots_;
    released_.notify_one();
    throw;
  }
  lock.lock();
  slots_.push_back(std::move(slot));
  return slots_.back().get();
}

void Uploader::release(Slot* slot, bool is_copying) {
  {
    std::lock_guard lock(mutex_);
    if (is_copying) {
      copying_.push_back(slot);
    } else {
      free_.push_back(slot);
    }
  }
  released_.notify_one();
}

void Uploader::finish() {
  check_cuda(cudaSetDevice(device_index_), "selecting the device");
  const cudaError_t status = cudaStreamSynchronize(stream_);
  free_.clear();
  copying_.clear();
  slots_.clear();
  num_slots_ = 0;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  check_cuda(status, "copying weights to the GPU");
}

}  // namespace quire
