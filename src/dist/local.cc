// Ranks that are threads of one process. In collectives they show each other their tensors between
// two barriers; what one rank sends to another is copied.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "base/ceil_div.h"
#include "dist/communicator.h"
#include "quire/error.h"

namespace quire {
namespace {

// Collectives of one forward pass follow each other within microseconds where every rank has a CPU;
// spinning that long saves a sleep and a wake-up in each. After it the rank sleeps. Ranks that
// share a CPU with each other, or with other threads that work, would hold these up, so they sleep
// at once.
constexpr int kSpins = 4000;

int spins_for(int num_threads) {
  const unsigned num_cpus = std::thread::hardware_concurrency();  // 0: nobody knows
  return num_cpus == 0 || static_cast<unsigned>(num_threads) <= num_cpus ? kSpins : 0;
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

[[noreturn]] void throw_aborted(int rank, int group_size) {
  throw Error(fmt::format("Rank {} of {} stopped because another rank of its group failed.", rank,
                          group_size));
}

// Whether abort() ends a wait. A rank that waits for a collective to open may leave; one that waits
// for it to close stays until the others have finished with its memory, which they do without
// waiting for anybody.
enum class OnAbort { kThrow, kStay };

// Where `size` ranks wait for each other, over and over.
class MeetingPoint {
 public:
  // Who waits looks `spins` times for the others before it sleeps.
  MeetingPoint(int size, int spins) : size_(size), spins_(spins) {}

  // Returns when all have arrived; throws Error, naming the caller's place in its group, when the
  // meeting was aborted before that.
  void arrive(OnAbort on_abort, int rank, int group_size) {
    uint64_t seen = state_.load(std::memory_order_acquire);
    uint64_t next = 0;
    do {
      if (on_abort == OnAbort::kThrow && (seen & kAborted) != 0) throw_aborted(rank, group_size);
      const bool last = (seen & kArrivedMask) + 1 == static_cast<uint64_t>(size_);
      next = last ? (seen & ~kArrivedMask) + kGeneration : seen + 1;
    } while (!state_.compare_exchange_weak(seen, next, std::memory_order_acq_rel,
                                           std::memory_order_acquire));
    const uint64_t mine = seen / kGeneration;
    if (next / kGeneration != mine) {
      wake_all();
      return;
    }
    const auto over = [&] {
      seen = state_.load(std::memory_order_acquire);
      return seen / kGeneration != mine || (on_abort == OnAbort::kThrow && (seen & kAborted) != 0);
    };
    for (int i = 0; i < spins_ && !over(); ++i) pause_cpu();
    if (!over()) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, over);
    }
    if (seen / kGeneration == mine) throw_aborted(rank, group_size);
  }

  void abort() {
    state_.fetch_or(kAborted, std::memory_order_acq_rel);
    wake_all();
  }

 private:
  // One word, so that a rank either arrives or sees the abort: the meeting's number, whether it was
  // aborted, and how many ranks have arrived.
  static constexpr uint64_t kGeneration = uint64_t{1} << 32;
  static constexpr uint64_t kAborted = uint64_t{1} << 31;
  static constexpr uint64_t kArrivedMask = kAborted - 1;

  void wake_all() {
    // The lock, though nothing is written under it, keeps this from falling between a sleeper's
    // last look at the state and its sleep.
    { std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }

  const int size_;
  const int spins_;
  std::atomic<uint64_t> state_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Of each way from one rank to another: what two steps of a pipeline send (memory_plan.cc counts
// with it), of large messages.
constexpr size_t kMostSpareMessages = 4;

// The way from one rank to another: copies of what was sent and not received yet. Memory of
// messages is kept for later ones, so that only the first large steps ask for some.
class Channel {
 public:
  // Throws Error, as take() does, once the group was aborted.
  void put(const Tensor& tensor, int rank, int group_size) {
    Message message =
        take_spare(static_cast<size_t>(tensor.num_elements()) * size_of(tensor.dtype()));
    message.dtype = tensor.dtype();
    message.num_elements = tensor.num_elements();
    if (message.capacity < message.size()) {
      message.bytes = std::make_unique_for_overwrite<std::byte[]>(message.size());
      message.capacity = message.size();
    }
    if (message.size() > 0) std::memcpy(message.bytes.get(), tensor.raw(), message.size());
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) throw_aborted(rank, group_size);
      messages_.push_back(std::move(message));
      num_waiting_.fetch_add(1, std::memory_order_release);
    }
    changed_.notify_one();
  }

  // Waits for the next message; looks for it `spins` times before it sleeps.
  void take(const Tensor& tensor, int rank, int group_size, int spins) {
    const auto may_go_on = [this] { return num_waiting_.load(std::memory_order_acquire) != 0; };
    for (int i = 0; i < spins && !may_go_on(); ++i) pause_cpu();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return aborted_ || !messages_.empty(); });
    if (aborted_) throw_aborted(rank, group_size);
    Message message = std::move(messages_.front());
    messages_.pop_front();
    num_waiting_.fetch_sub(1, std::memory_order_release);
    lock.unlock();
    check(message.num_elements == tensor.num_elements() && message.dtype == tensor.dtype(),
          "a tensor is received as it was sent");
    if (message.size() > 0) std::memcpy(tensor.raw(), message.bytes.get(), message.size());
    lock.lock();
    keep(std::move(message));
  }

  void abort() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
      num_waiting_.fetch_add(1, std::memory_order_release);
    }
    changed_.notify_all();
  }

 private:
  struct Message {
    DType dtype = DType::kFloat32;
    int64_t num_elements = 0;
    std::unique_ptr<std::byte[]> bytes;
    size_t capacity = 0;  // of `bytes`

    size_t size() const { return static_cast<size_t>(num_elements) * size_of(dtype); }
  };

  // The smallest that holds `size` bytes; of those, the one that was used last, which the
  // processor's caches may still hold. None has memory where there is none such, or where it is
  // that of a much larger message: else ids would take the memory of hidden states, and these would
  // ask for more.
  Message take_spare(size_t size) {
    constexpr size_t kSmall = 4096;
    constexpr size_t kMostTimes = 16;
    const std::lock_guard lock(mutex_);
    auto best = spare_.end();
    for (auto it = spare_.begin(); it != spare_.end(); ++it) {
      if (it->capacity < size) continue;
      if (best == spare_.end() || it->capacity <= best->capacity) best = it;
    }
    if (best == spare_.end() || best->capacity > kMostTimes * std::max(size, kSmall)) return {};
    Message message = std::move(*best);
    spare_.erase(best);
    return message;
  }

  // Instead of the smallest where there are enough. Under the lock.
  void keep(Message message) {
    if (spare_.size() < kMostSpareMessages) return spare_.push_back(std::move(message));
    const auto smallest = std::ranges::min_element(spare_, {}, &Message::capacity);
    if (smallest->capacity >= message.capacity) return;
    spare_.erase(smallest);
    spare_.push_back(std::move(message));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> messages_;
  std::vector<Message> spare_;
  bool aborted_ = false;
  std::atomic<int64_t> num_waiting_ = 0;  // messages, and one more for each abort()
};

class Group {
 public:
  Group(int n, int num_threads)
      : size(n),
        spins(spins_for(std::max(n, num_threads))),
        tensors(static_cast<size_t>(n)),
        all_(n, spins),
        channels_(static_cast<size_t>(n) * static_cast<size_t>(n)) {}

  const int size;
  const int spins;
  // Element r is written by rank r before the barrier that opens a collective, and read by all
  // until the one that closes it.
  std::vector<Tensor> tensors;

  void barrier(int rank, OnAbort on_abort) { all_.arrive(on_abort, rank, size); }
  Channel& channel(int from, int to) {
    return channels_[static_cast<size_t>(from) * static_cast<size_t>(size) +
                     static_cast<size_t>(to)];
  }

  void abort() {
    all_.abort();
    for (Channel& channel : channels_) channel.abort();
  }

 private:
  MeetingPoint all_;
  std::vector<Channel> channels_;
};

// The part of n elements that rank r of `size` works on.
std::pair<int64_t, int64_t> slice_of(int64_t n, int64_t r, int64_t size) {
  return {n * r / size, n * (r + 1) / size};
}

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size; }

  void all_reduce_sum(Stream& stream, const Tensor& tensor) override {
    check(tensor.dtype() == DType::kFloat32 && tensor.contiguous(),
          "all_reduce_sum takes a contiguous float32 tensor");
    if (size() == 1) return;
    open(tensor);
    // Each rank sums one slice of everybody's tensor, in rank order, and writes it back to
    // everybody.
    const auto [begin, end] = slice_of(tensor.num_elements(), rank_, size());
    const int64_t first = begin;
    const int64_t length = end - begin;
    constexpr int64_t kTask = 16384;  // elements: 64 KiB a rank, a few stay in the L2 cache
    stream.pool().parallel_for(ceil_div(length, kTask), [&](int64_t task, int) {
      sum_slice(first + task * kTask, first + std::min(length, (task + 1) * kTask));
    });
    close();
  }

  void all_gather_columns(Stream& stream, const Tensor& input, const Tensor& output) override {
    check(input.rank() == 2 && output.rank() == 2 && input.dtype() == output.dtype() &&
              output.dim(0) == input.dim(0) && output.dim(1) == input.dim(1) * size(),
          "all_gather_columns takes [rows, cols] to [rows, cols * size]");
    open(input);
    const int64_t element = static_cast<int64_t>(size_of(input.dtype()));
    const int64_t columns = input.dim(1);
    auto* out = static_cast<std::byte*>(output.raw());
    stream.pool().parallel_for(input.dim(0), [&](int64_t row, int) {
      for (int r = 0; r < size(); ++r) {
        const Tensor& from = group_->tensors[static_cast<size_t>(r)];
        const auto* source =
            static_cast<const std::byte*>(from.raw()) + row * from.row_stride() * element;
        std::byte* to = out + (row * output.row_stride() + r * columns) * element;
        // Others read what is in its place already.
        if (to != source) std::memcpy(to, source, static_cast<size_t>(columns * element));
      }
    });
    close();
  }

  void broadcast(Stream&, const Tensor& tensor, int root) override {
    check(root >= 0 && root < size(), "broadcast from a rank that is not in the group");
    check(tensor.contiguous(), "broadcast takes a contiguous tensor");
    open(tensor);
    if (rank_ != root) copy_all(group_->tensors[static_cast<size_t>(root)], tensor);
    close();
  }

  void send(Stream&, const Tensor& tensor, int to) override {
    check_peer(to);
    check(tensor.contiguous(), "send takes a contiguous tensor");
    group_->channel(rank_, to).put(tensor, rank_, size());
  }

  void receive(Stream&, const Tensor& tensor, int from) override {
    check_peer(from);
    check(tensor.contiguous(), "receive takes a contiguous tensor");
    group_->channel(from, rank_).take(tensor, rank_, size(), group_->spins);
  }

  void barrier() override { group_->barrier(rank_, OnAbort::kThrow); }
  void abort() override { group_->abort(); }

 private:
  // Shows `tensor` to the group and waits until all have shown theirs.
  void open(const Tensor& tensor) {
    group_->tensors[static_cast<size_t>(rank_)] = tensor;
    group_->barrier(rank_, OnAbort::kThrow);
    const Tensor& first = group_->tensors[0];
    check(first.num_elements() == tensor.num_elements() && first.dtype() == tensor.dtype(),
          "ranks called one collective with different tensors");
  }

  void close() { group_->barrier(rank_, OnAbort::kStay); }

  void check_peer(int other) const {
    check(other >= 0 && other < size() && other != rank_, "ranks send to others of their group");
  }

  static void copy_all(const Tensor& from, const Tensor& to) {
    if (to.num_elements() == 0) return;
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(to.num_elements()) * size_of(to.dtype()));
  }

  void sum_slice(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      float sum = group_->tensors[0].data<float>()[i];
      for (size_t r = 1; r < group_->tensors.size(); ++r)
        sum += group_->tensors[r].data<float>()[i];
      for (const Tensor& tensor : group_->tensors) tensor.data<float>()[i] = sum;
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(int size, int num_threads) {
  check(size >= 1, "a group has at least one rank");
  auto group = std::make_shared<Group>(size, num_threads);
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::make_unique<LocalCommunicator>(group, rank));
  }
  return ranks;
}

}  // namespace quire
