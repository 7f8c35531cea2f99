#include "base/memory_account.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

MemoryAccount::MemoryAccount(int64_t limit) : limit_(limit) {
  check(limit >= 0, "a memory account's limit is negative");
}

bool MemoryAccount::take(int64_t bytes) {
  int64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit_ - used) {
      num_refused_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

void MemoryAccount::give_back(int64_t bytes) {
  used_.fetch_sub(bytes, std::memory_order_relaxed);
}

void MemoryAccount::on_much_ended(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  much_ended_ = std::move(call);
}

void MemoryAccount::end_charge(int64_t peak_bytes) {
  if (peak_bytes < kCountedBytes) return;
  int64_t ended = ended_bytes_.load(std::memory_order_relaxed);
  int64_t sum = 0;
  do {
    sum = ended + peak_bytes;
  } while (!ended_bytes_.compare_exchange_weak(ended, sum < kMuchBytes ? sum : 0,
                                               std::memory_order_relaxed));
  if (sum < kMuchBytes) return;
  const std::lock_guard lock(mutex_);
  if (much_ended_) much_ended_();
}

MemoryCharge::~MemoryCharge() {
  account_->give_back(bytes_);
  account_->end_charge(peak_bytes_);
}

bool MemoryCharge::resize(int64_t bytes) {
  check(bytes >= 0, "a memory charge is negative");
  if (bytes > bytes_ && !account_->take(bytes - bytes_)) return false;
  if (bytes < bytes_) account_->give_back(bytes_ - bytes);
  bytes_ = bytes;
  peak_bytes_ = std::max(peak_bytes_, bytes_);
  return true;
}

}  // namespace quire
