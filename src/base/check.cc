#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace quire {

void check_failed(std::string_view what, const CodePlace& where) {
  std::fprintf(stderr, "quire: check failed: %.*s (%s:%d in %s)\n", static_cast<int>(what.size()),
               what.data(), where.file, where.line, where.function);
  std::abort();
}

}  // namespace quire
