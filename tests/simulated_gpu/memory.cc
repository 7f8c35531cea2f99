#include "simulated_gpu/memory.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "quire/error.h"
#include "simulated_gpu/stream.h"

namespace quire::simulated {
namespace {

constexpr size_t kPieceAlignment = 256;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Each piece is an allocation of its own, so that the address sanitizer sees what goes beyond one.
class SimulatedMemory final : public DeviceMemory {
 public:
  SimulatedMemory(Gpu& gpu, size_t bytes) : gpu_(gpu), size_(bytes), uploads_(gpu) {}
  ~SimulatedMemory() override {
    gpu_.finish();
    gpu_.give_back(static_cast<int64_t>(size_));
  }

  std::byte* take(size_t bytes) override {
    const size_t rounded = (bytes + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
    if (rounded > size_ - taken_) {
      throw Error(
          fmt::format("cuda:{}: {} bytes are wanted, but of the {} that were planned {} "
                      "are taken; the plan is wrong.",
                      gpu_.index(), bytes, size_, taken_));
    }
    taken_ += rounded;
    // calloc leaves it to the system to clear large pieces, page by page at their first use.
    void* memory = std::calloc(1, bytes + kPieceAlignment);
    if (memory == nullptr) throw Error("The machine has no memory left for its simulated GPUs.");
    pieces_.emplace_back(memory);
    const auto address = reinterpret_cast<uintptr_t>(memory);
    return reinterpret_cast<std::byte*>((address + kPieceAlignment - 1) / kPieceAlignment *
                                        kPieceAlignment);
  }

  void upload(std::byte* to, size_t bytes,
              const std::function<void(std::byte* from)>& fill) override {
    auto staged = std::make_shared<std::vector<std::byte>>(bytes);
    fill(staged->data());
    uploads_.queue("upload", [=] { std::memcpy(to, staged->data(), bytes); });
  }

  void finish_uploads() override {
    uploads_.work()->wait(uploads_.work()->size(), "copying weights to the GPU");
  }

  void download(void* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

 private:
  Gpu& gpu_;
  size_t size_;
  size_t taken_ = 0;
  std::vector<std::unique_ptr<void, Free>> pieces_;
  CudaStream uploads_;
};

class SimulatedPinnedBuffer final : public PinnedBuffer {
 public:
  SimulatedPinnedBuffer(Gpus& gpus, size_t bytes) : gpus_(gpus), bytes_(bytes) {}
  ~SimulatedPinnedBuffer() override {
    for (const auto& gpu : gpus_) gpu->finish();
  }
  std::byte* data() override { return bytes_.data(); }

 private:
  Gpus& gpus_;
  std::vector<std::byte> bytes_;
};

}  // namespace

std::unique_ptr<DeviceMemory> reserve(Gpu& gpu, size_t bytes) {
  if (gpu.is_faulty("reserve") || !gpu.take(static_cast<int64_t>(bytes))) {
    throw OutOfDeviceMemory(fmt::format(
        "cuda:{} has not the {:.2f} GiB of free memory that the engine planned to take; another "
        "program took some just now. End it, or lower --gpu-memory-utilization.",
        gpu.index(), static_cast<double>(bytes) / (1 << 30)));
  }
  return std::make_unique<SimulatedMemory>(gpu, bytes);
}

std::unique_ptr<PinnedBuffer> allocate_pinned(Gpus& gpus, size_t bytes) {
  return std::make_unique<SimulatedPinnedBuffer>(gpus, bytes);
}

}  // namespace quire::simulated
