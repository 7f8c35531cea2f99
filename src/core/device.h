#pragma once
// Where memory lives and work runs.
#include <cstddef>
#include <functional>
#include <string>

namespace quire {

enum class DeviceType { kCpu, kCuda };

// One GPU's memory, as one rank takes it: pieces of a reservation made at the start
// (core/device_library.h). So an engine takes what its plan says, and nothing later.
//
// Thread safety: upload() from several threads at once, to pieces that don't overlap; all else from
// one thread at a time.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // Zeroed memory, aligned to 256 bytes, that lives as long as this object. Throws Error when too
  // little of the reserved memory is left.
  virtual std::byte* take(size_t bytes) = 0;
  // Fills `bytes` bytes of a piece: `fill` writes them to memory that the device can copy from. The
  // copy may still be under way when this returns.
  virtual void upload(std::byte* to, size_t bytes,
                      const std::function<void(std::byte* from)>& fill) = 0;
  // Returns when all uploads have arrived.
  virtual void finish_uploads() = 0;
  // The other way, for tests and small things. Returns when the copy is done.
  virtual void download(void* to, const std::byte* from, size_t bytes) = 0;
};

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  // Outlives what is allocated from it. Null: the CPU's, from the system.
  DeviceMemory* memory = nullptr;
  int compute_capability = 0;  // of a GPU: 10 * major + minor; 0 on the CPU
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::kCpu; }
};

// "cpu", "cuda:1".
std::string to_string(const Device& device);

}  // namespace quire
