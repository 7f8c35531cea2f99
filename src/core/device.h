#pragma once
// Where memory lives and work runs.
#include <string>

namespace quire {

enum class DeviceType { kCpu, kCuda };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda:1".
std::string to_string(const Device& device);

}  // namespace quire
