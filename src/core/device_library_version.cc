#include "core/device_library.h"
#include "quire/version.h"

namespace quire {

std::string device_library_version() {
  return std::string(version()) + "+" + QUIRE_DEVICE_INTERFACE;
}

}  // namespace quire
