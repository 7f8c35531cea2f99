#pragma once
// Keeps messages for the ranks of this process until the ranks ask for them.
//
// Thread safety: any thread; from one mailbox only one thread receives at a time.
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace quire::cluster {

class Mailboxes {
 public:
  // Adds a part of a message. Ignored once the mailboxes are closed.
  void put(uint64_t address, std::vector<std::byte> part);
  // Fills `bytes` from the parts that have come, and waits for more if needed. False once the
  // mailboxes are closed.
  bool take(uint64_t address, std::span<std::byte> bytes);
  void close();

 private:
  struct Mailbox {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::vector<std::byte>> parts;
    bool closed = false;
  };
  Mailbox& at(uint64_t address);

  std::mutex mutex_;
  std::map<uint64_t, std::unique_ptr<Mailbox>> boxes_;
  bool closed_ = false;
};

}  // namespace quire::cluster
