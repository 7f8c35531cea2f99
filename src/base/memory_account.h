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
// Thread safety: MemoryAccount from any thread; a MemoryCharge from one thread at a time.
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace quire {

class MemoryAccount {
 public:
  // In bytes, >= 0.
  explicit MemoryAccount(int64_t limit);
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_.load(std::memory_order_relaxed); }
  // Charges that did not fit, since the start.
  int64_t num_refused() const { return num_refused_.load(std::memory_order_relaxed); }

 private:
  friend class MemoryCharge;
  bool take(int64_t bytes);
  void give_back(int64_t bytes);
  bool ends_much(int64_t peak_bytes, int64_t much);

  const int64_t limit_;
  std::atomic<int64_t> used_{0};
  std::atomic<int64_t> num_refused_{0};
  std::atomic<int64_t> ended_bytes_{0};  // peaks of charges that counted as they ended
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
  // Called once, as the request ends. Adds this charge's peak to the sum of the peaks of ended
  // charges, unless it is below `least`. Returns true, and starts the sum anew, when it has reached
  // `much`.
  bool ends_much(int64_t least, int64_t much) {
    return peak_bytes_ >= least && account_->ends_much(peak_bytes_, much);
  }

 private:
  const std::shared_ptr<MemoryAccount> account_;
  int64_t bytes_ = 0;
  int64_t peak_bytes_ = 0;
};

}  // namespace quire
