#include "simulated_gpu/shared_communicators.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>

#include "base/check.h"
#include "quire/error.h"

namespace quire::simulated {
namespace {

constexpr size_t kPieceBytes = size_t{64} << 10;

// From one rank to another. Zeros in the beginning.
struct Channel {
  alignas(64) std::atomic<uint32_t> num_sent;
  alignas(64) std::atomic<uint32_t> num_received;
  alignas(64) std::byte piece[kPieceBytes];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Sleeps until a process that shares `word` has changed it from `seen`, or for a while.
void wait_for_change(std::atomic<uint32_t>& word, uint32_t seen) {
  constexpr timespec kWhile = {.tv_sec = 0, .tv_nsec = 10'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kWhile, nullptr, 0);
}

void change(std::atomic<uint32_t>& word, uint32_t value) {
  word = value;
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

[[noreturn]] void fail(std::string_view what) {
  throw Error(fmt::format("Simulated GPUs cannot share memory between processes: {}: {}.", what,
                          std::strerror(errno)));
}

// The channels of a group.
class Channels {
 public:
  Channels(std::span<const std::byte> id, int size)
      : size_(static_cast<size_t>(size)), bytes_(size_ * size_ * sizeof(Channel)) {
    const std::string path(reinterpret_cast<const char*>(id.data()), id.size());
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) fail(path);
    void* memory = MAP_FAILED;
    // Every process gives it the same size.
    if (ftruncate(file, static_cast<off_t>(bytes_)) == 0) {
      memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    if (memory == MAP_FAILED) fail(path);
    channels_ = static_cast<Channel*>(memory);
  }
  ~Channels() { munmap(channels_, bytes_); }
  Channels(const Channels&) = delete;
  Channels& operator=(const Channels&) = delete;

  Channel& between(int from, int to) {
    return channels_[static_cast<size_t>(from) * size_ + static_cast<size_t>(to)];
  }

 private:
  size_t size_;
  size_t bytes_;
  Channel* channels_ = nullptr;
};

std::byte* row_of(const Tensor& tensor, int64_t row) {
  return static_cast<std::byte*>(tensor.raw()) +
         static_cast<size_t>(row * tensor.row_stride()) * size_of(tensor.dtype());
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw()),
          static_cast<size_t>(tensor.num_elements()) * size_of(tensor.dtype())};
}

class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(std::span<const std::byte> id, int rank, int size)
      : channels_(id, size), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce_sum(Stream&, const Tensor& tensor) override {
    check(tensor.dtype() == DType::kFloat32 && tensor.contiguous(),
          "all_reduce_sum takes a contiguous float32 tensor");
    auto* const values = tensor.data<float>();
    const auto n = static_cast<size_t>(tensor.num_elements());
    const std::vector<float> mine(values, values + n);
    gather(std::as_bytes(std::span(mine)), [&](int from, size_t begin, auto part) {
      float* const sums = values + begin / sizeof(float);
      for (size_t i = 0; i < part.size() / sizeof(float); ++i) {
        float value = 0;
        std::memcpy(&value, &part[i * sizeof(float)], sizeof(float));
        sums[i] = from == 0 ? value : sums[i] + value;
      }
    });
  }

  void all_gather_columns(Stream&, const Tensor& input, const Tensor& output) override {
    const size_t row_bytes = static_cast<size_t>(input.dim(1)) * size_of(input.dtype());
    const auto rows = static_cast<size_t>(input.dim(0));
    std::vector<std::byte> mine(rows * row_bytes);
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(&mine[row * row_bytes], row_of(input, static_cast<int64_t>(row)), row_bytes);
    }
    std::vector<std::byte> all(static_cast<size_t>(size_) * mine.size());
    gather(mine, [&](int from, size_t begin, std::span<const std::byte> part) {
      std::ranges::copy(part, &all[static_cast<size_t>(from) * mine.size() + begin]);
    });
    for (size_t from = 0; from < static_cast<size_t>(size_); ++from) {
      for (size_t row = 0; row < rows; ++row) {
        std::memcpy(row_of(output, static_cast<int64_t>(row)) + from * row_bytes,
                    &all[from * mine.size() + row * row_bytes], row_bytes);
      }
    }
  }

  void broadcast(Stream& stream, const Tensor& tensor, int root) override {
    if (rank_ != root) return receive(stream, tensor, root);
    for (int to = 0; to < size_; ++to) {
      if (to != root) send(stream, tensor, to);
    }
  }

  void send(Stream&, const Tensor& tensor, int to) override {
    in_pieces(bytes_of(tensor), [&](size_t, std::span<std::byte> piece) { put(to, piece); });
  }

  void receive(Stream&, const Tensor& tensor, int from) override {
    in_pieces(bytes_of(tensor), [&](size_t, std::span<std::byte> piece) {
      take(from, [&](const std::byte* data) { std::copy_n(data, piece.size(), piece.begin()); });
    });
  }

  void barrier() override { check(false, "ranks meet on the host elsewhere"); }
  void abort() override { aborted_ = true; }

 private:
  template <typename Bytes, typename Visit>
  static void in_pieces(Bytes bytes, const Visit& visit) {
    for (size_t begin = 0; begin < bytes.size(); begin += kPieceBytes) {
      visit(begin, bytes.subspan(begin, std::min(kPieceBytes, bytes.size() - begin)));
    }
  }

  // Calls visit(rank, begin, part) with parts of what all ranks have, as many bytes each, in rank
  // order.
  template <typename Visit>
  void gather(std::span<const std::byte> mine, const Visit& visit) {
    in_pieces(mine, [&](size_t begin, std::span<const std::byte> piece) {
      for (int to = 0; to < size_; ++to) {
        if (to != rank_) put(to, piece);
      }
      for (int from = 0; from < size_; ++from) {
        if (from == rank_) {
          visit(from, begin, piece);
        } else {
          take(from,
               [&](const std::byte* data) { visit(from, begin, std::span(data, piece.size())); });
        }
      }
    });
  }

  void put(int to, std::span<const std::byte> piece) {
    Channel& channel = channels_.between(rank_, to);
    const uint32_t number = channel.num_sent;
    wait_until(channel.num_received, [&](uint32_t received) { return received == number; });
    std::ranges::copy(piece, channel.piece);
    change(channel.num_sent, number + 1);
  }

  template <typename Use>
  void take(int from, const Use& use) {
    Channel& channel = channels_.between(from, rank_);
    const uint32_t number = channel.num_received;
    wait_until(channel.num_sent, [&](uint32_t sent) { return sent != number; });
    use(channel.piece);
    change(channel.num_received, number + 1);
  }

  template <typename Condition>
  void wait_until(std::atomic<uint32_t>& word, const Condition& condition) {
    for (;;) {
      const uint32_t seen = word;
      if (condition(seen)) return;
      // abort() wakes nobody: a wait ends after a while, and looks again.
      if (aborted_) throw Error("The group of ranks was ended.");
      wait_for_change(word, seen);
    }
  }

  Channels channels_;
  int rank_;
  int size_;
  std::atomic<bool> aborted_ = false;
};

}  // namespace

SharedMemory::SharedMemory() : file_(memfd_create("quire_simulated_gpus", MFD_CLOEXEC)) {
  if (file_ < 0) fail("memfd_create");
}

SharedMemory::~SharedMemory() {
  close(file_);
}

std::vector<std::byte> SharedMemory::id() const {
  const std::string path = fmt::format("/proc/{}/fd/{}", getpid(), file_);
  const auto bytes = std::as_bytes(std::span(path));
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<Communicator> make_shared_communicator(std::span<const std::byte> id, int rank,
                                                       int size) {
  return std::make_unique<SharedCommunicator>(id, rank, size);
}

}  // namespace quire::simulated
