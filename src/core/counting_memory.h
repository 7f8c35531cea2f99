#pragma once
// Memory that is counted instead of taken, to learn how much an object built on it needs.
//
// It hands out an address that no program can have, so that any read or write of it faults. Ops on
// it run on a Stream that only checks (core/stream.h). Thread safety: one thread at a time.
#include <cstdint>

#include "core/device.h"

namespace quire {

class CountingMemory final : public DeviceMemory {
 public:
  // In the middle of the addresses that x86-64 leaves out: no offset of a plausible size leads out
  // of them.
  static std::byte* nowhere() {
    return reinterpret_cast<std::byte*>(uintptr_t{1} << 62);  // NOLINT(performance-no-int-to-ptr)
  }

  std::byte* take(size_t bytes) override {
    taken_ += bytes;
    return nowhere();
  }
  void upload(std::byte*, size_t, const std::function<void(std::byte*)>&) override {}
  void finish_uploads() override {}
  // There is nothing to read: aborts.
  void download(void* to, const std::byte* from, size_t bytes) override;

  // Bytes that were asked for so far.
  size_t taken() const { return taken_; }

 private:
  size_t taken_ = 0;
};

}  // namespace quire
