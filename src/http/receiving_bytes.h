#pragma once
// Bytes of the bodies that come in or wait for an answer: of all clients together, and of each.
//
// Thread safety: any thread.
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

namespace quire::http {

class ReceivingBytes {
 public:
  // What bodies of a client, by its address, have changes by so much.
  void change(const std::string& remote, int64_t by) {
    if (by == 0) return;
    const std::lock_guard lock(mutex_);
    total_ += by;
    const auto entry = of_remote_.try_emplace(remote).first;
    entry->second += by;
    if (entry->second == 0) of_remote_.erase(entry);
  }

  int64_t total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }
  int64_t of(const std::string& remote) const {
    const std::lock_guard lock(mutex_);
    const auto entry = of_remote_.find(remote);
    return entry == of_remote_.end() ? 0 : entry->second;
  }

 private:
  mutable std::mutex mutex_;
  int64_t total_ = 0;
  std::unordered_map<std::string, int64_t> of_remote_;  // no zeros
};

}  // namespace quire::http
