#include "quire/version.h"

namespace quire {

std::string_view version() {
  return QUIRE_VERSION;
}

}  // namespace quire
