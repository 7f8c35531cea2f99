#include "core/uploader_cuda.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "core/check_cuda.h"
#include "quire/error.h"

namespace quire {
namespace {

// Reading a file from the page cache takes about 5 threads to be faster than PCIe; the rest is what
// the copy engine has before it while they write.
constexpr size_t kMaxSlots = 24;

// Slots lie in huge pages of their own.
constexpr size_t kMappingBytes = (kMaxSlots + 1) * Uploader::kSlotBytes;

std::byte* first_slot(void* mapping) {
  const auto address = reinterpret_cast<uintptr_t>(mapping);
  const uintptr_t aligned = round_up(address, Uploader::kSlotBytes);
  return static_cast<std::byte*>(mapping) + (aligned - address);
}

}  // namespace

Uploader::Slot::Slot(std::byte* unpinned) : memory(unpinned) {
  // Threads touch their pages side by side; registering them is done one after the other.
  std::memset(memory, 0, kSlotBytes);
  check_cuda(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming), "making an event");
  const cudaError_t status = cudaHostRegister(memory, kSlotBytes, cudaHostRegisterDefault);
  if (status != cudaSuccess) cudaEventDestroy(copied);
  check_cuda(status, "pinning host memory");
}

Uploader::Slot::~Slot() {
  // A failure here repeats an earlier one: the context is lost.
  cudaEventDestroy(copied);
  cudaHostUnregister(memory);
}

Uploader::Uploader(int device_index) : device_index_(device_index) {
  check_cuda(cudaSetDevice(device_index), "selecting the device");
  // Not a non-blocking stream: copies wait for the default stream.
  check_cuda(cudaStreamCreate(&stream_), "making a stream");
  mapping_ =
      mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    cudaStreamDestroy(stream_);
    throw Error("The system refused memory to load weights through; close other programs.");
  }
  // Only advice: its failure makes loading slower.
  (void)madvise(mapping_, kMappingBytes, MADV_HUGEPAGE);
  for (size_t i = 0; i < kMaxSlots; ++i) {
    unpinned_.push_back(first_slot(mapping_) + i * kSlotBytes);
  }
}

Uploader::~Uploader() {
  cudaStreamSynchronize(stream_);
  slots_.clear();
  cudaStreamDestroy(stream_);
  munmap(mapping_, kMappingBytes);
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
    const bool is_full = unpinned_.empty();
    if (!copying_.empty() && (is_full || cudaEventQuery(copying_.front()->copied) == cudaSuccess)) {
      Slot* slot = copying_.front();
      copying_.pop_front();
      return slot;
    }
    if (!is_full) break;
    released_.wait(lock);
  }
  std::byte* memory = unpinned_.back();
  unpinned_.pop_back();
  lock.unlock();
  std::unique_ptr<Slot> slot;
  try {
    slot = std::make_unique<Slot>(memory);
  } catch (...) {
    lock.lock();
    unpinned_.push_back(memory);
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
  for (const auto& slot : slots_) unpinned_.push_back(slot->memory);
  slots_.clear();
  (void)madvise(mapping_, kMappingBytes, MADV_DONTNEED);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  check_cuda(status, "copying weights to the GPU");
}

}  // namespace quire
