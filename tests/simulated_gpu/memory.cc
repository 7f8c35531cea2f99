#include "simulated_gpu/memory.h"

#include <fmt/format.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "quire/error.h"
#include "simulated_gpu/stream.h"

namespace quire::simulated {
namespace {

constexpr size_t kPieceAlignment = 256;

constexpr size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

// Zeroed memory of one piece, which sanitizers see as an allocation of its own: it ends where it
// may not be touched.
class Piece {
 public:
  // Throws Error where there is no memory left.
  explicit Piece(size_t bytes) : size_(bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t pages = round_up(bytes, page);
    mapped_bytes_ = pages + 2 * page;
    // Sanitizers would mark each byte of an allocation. A model's first tokens use few of them.
    void* const mapped =
        mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw_no_memory();
    mapped_ = static_cast<std::byte*>(mapped);
    first_ = mapped_ + page;
    if (mprotect(first_, pages, PROT_READ | PROT_WRITE) != 0) {
      munmap(mapped_, mapped_bytes_);
      throw_no_memory();
    }
    end_ = first_ + pages;
    data_ = end_ - round_up(bytes, kPieceAlignment);
    ASAN_POISON_MEMORY_REGION(first_, data_ - first_);
    ASAN_POISON_MEMORY_REGION(data_ + bytes, end_ - (data_ + bytes));
  }
  ~Piece() {
    ASAN_UNPOISON_MEMORY_REGION(first_, data_ - first_);
    ASAN_UNPOISON_MEMORY_REGION(data_ + size_, end_ - (data_ + size_));
    munmap(mapped_, mapped_bytes_);
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;

  std::byte* data() const { return data_; }

 private:
  [[noreturn]] static void throw_no_memory() {
    throw Error("The machine has no memory left for its simulated GPUs.");
  }

  size_t size_;
  size_t mapped_bytes_ = 0;
  std::byte* mapped_ = nullptr;  // with a page before and one behind that may not be touched
  std::byte* first_ = nullptr;
  std::byte* data_ = nullptr;
  std::byte* end_ = nullptr;
};

class SimulatedMemory final : public DeviceMemory {
 public:
  SimulatedMemory(Gpu& gpu, size_t bytes) : gpu_(gpu), size_(bytes), uploads_(gpu) {}
  ~SimulatedMemory() override {
    gpu_.finish();
    gpu_.give_back(static_cast<int64_t>(size_));
  }

  std::byte* take(size_t bytes) override {
    const size_t rounded = round_up(bytes, kPieceAlignment);
    if (rounded > size_ - taken_) {
      throw Error(
          fmt::format("cuda:{}: {} bytes are wanted, but of the {} that were planned {} "
                      "are taken; the plan is wrong.",
                      gpu_.index(), bytes, size_, taken_));
    }
    taken_ += rounded;
    return pieces_.emplace_back(std::make_unique<Piece>(bytes))->data();
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
  std::vector<std::unique_ptr<Piece>> pieces_;
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
