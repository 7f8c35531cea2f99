#pragma once
// Messages that have come for the ranks of this process, until they ask for them.
//
// Thread safety: any thread; one receives at a time from a mailbox.
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
  // A part of a message; ignored once they are closed.
  void put(uint64_t address, std::vector<std::byte> part);
  // Fills `bytes` from the parts that have come and will come. False once they are closed.
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
