#include "core/device.h"

namespace quire {

std::string to_string(const Device& device) {
  return device.type == DeviceType::kCpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace quire
