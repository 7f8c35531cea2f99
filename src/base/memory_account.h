#pragma once
// An account of the memory that a process keeps for its clients, and each request's charge to it.
//
// const auto account = std::make_shared<MemoryAccount>(1 << 30);
//  MemoryCharge charge(account);
//  if (!charge.add(bytes)) refuse();     // too little is left in the account
//  ...                                   // given back where `charge` ends
//
// It only adds up the numbers that it is given; it allocates nothing.
//
// Free memory stays with the allocator. So that it can be given back to the system, the account
// tells its owner each time that the charges that ended since had much memory together, however
// they ended.
//
// Thread safety: MemoryAccount from any thread; a MemoryCharge from one thread at a time.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace quire {

class MemoryAccount {
 public:
  // Charges that never had as much do not count as they end: later ones use their memory again.
  static constexpr int64_t kCountedBytes = 256 << 10;
  static constexpr int64_t kMuchBytes = 8 << 20;

  // In bytes, >= 0.
  explicit MemoryAccount(int64_t limit);
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  // Charges that did not fit, since the start.
  int64_t num_refused() const { return num_refused_.load(std::memory_order_relaxed); }
  // From now on `call` is made each time that the peaks of the charges that ended since the last
  // call sum up to kMuchBytes: on the thread that ended the last of them, whose memory may still be
  // in use for a moment. It must not throw, nor end a charge. Empty: no calls. Once this returns,
  // no call of an earlier one is under way.
  void on_much_ended(std::function<void()> call);

 private:
  friend class MemoryCharge;
  bool take(int64_t bytes);
  void give_back(int64_t bytes);
  void end_charge(int64_t peak_bytes);

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> num_refused_{0};
  std::atomic<int64_t> ended_bytes_{0};  // peaks of charges that counted as they ended
  std::mutex mutex_;                     // of what follows
  std::function<void()> much_ended_;
};

class MemoryCharge {
 public:
  // Of 0 bytes.
  explicit MemoryCharge(std::shared_ptr<MemoryAccount> account) : account_(std::move(account)) {}
  ~MemoryCharge();
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

  const MemoryAccount& account() const { return *account_; }
  int64_t bytes() const { return bytes_; }
  // The most that it has been.
  int64_t peak_bytes() const { return peak_bytes_; }
  // Sets the charge to `bytes` >= 0. Returns false, and changes nothing, where the account has too
  // little left. Less always succeeds.
  [[nodiscard]] bool resize(int64_t bytes);
  [[nodiscard]] bool add(int64_t bytes) { return resize(bytes_ + bytes); }

 private:
  const std::shared_ptr<MemoryAccount> account_;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace quire
