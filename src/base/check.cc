#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire {

void check_failed(std::string_view what, const std::source_location& where) {
  std::fprintf(stderr, "quire: check failed: %.*s (%s:%u in %s)\n", static_cast<int>(what.size()),
               what.data(), where.file_name(), static_cast<unsigned>(where.line()),
               where.function_name());
  std::abort();
}

}  // namespace quire
