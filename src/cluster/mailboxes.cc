#include "cluster/mailboxes.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::cluster {

Mailboxes::Mailbox& Mailboxes::at(uint64_t address) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Mailbox>& box = boxes_[address];
  if (!box) {
    box = std::make_unique<Mailbox>();
    box->closed = closed_;
  }
  return *box;
}

void Mailboxes::put(uint64_t address, std::vector<std::byte> part) {
  Mailbox& box = at(address);
  {
    const std::lock_guard lock(box.mutex);
    if (box.closed) return;
    box.parts.push_back(std::move(part));
  }
  box.changed.notify_one();
}

bool Mailboxes::take(uint64_t address, std::span<std::byte> bytes) {
  Mailbox& box = at(address);
  do {
    std::vector<std::byte> part;
    {
      std::unique_lock lock(box.mutex);
      box.changed.wait(lock, [&] { return box.closed || !box.parts.empty(); });
      if (box.closed) return false;
      part = std::move(box.parts.front());
      box.parts.pop_front();
    }
    check(part.size() <= bytes.size() && (!part.empty() || bytes.empty()),
          "a message between ranks is received as it was sent");
    std::ranges::copy(part, bytes.begin());
    bytes = bytes.subspan(part.size());
  } while (!bytes.empty());
  return true;
}

void Mailboxes::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const auto& [address, box] : boxes_) {
    {
      const std::lock_guard box_lock(box->mutex);
      box->closed = true;
    }
    box->changed.notify_all();
  }
}

}  // namespace quire::cluster
