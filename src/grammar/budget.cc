#include "grammar/budget.h"

#include <fmt/format.h>

#include "quire/error.h"

namespace quire::grammar {

void Budget::check_time() const {
  if (std::chrono::steady_clock::now() < end_) return;
  throw Error(
      fmt::format("{}: compiling this takes longer than {} ms", place_, limits_.time.count()));
}

void Budget::fail_memory() const {
  throw Error(fmt::format("{}: compiling this takes more than {} MiB of memory", place_,
                          limits_.memory_bytes >> 20));
}

}  // namespace quire::grammar
