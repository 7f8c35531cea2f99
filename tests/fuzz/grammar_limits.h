#pragma once
// What compiling a constraint may cost while it is fuzzed.
#include <chrono>
#include <cstddef>

#include "grammar/budget.h"

// `source_bytes`: the longest text that is compiled.
inline quire::grammar::CompileLimits fuzz_limits(std::size_t source_bytes) {
  quire::grammar::CompileLimits limits;
  limits.time = std::chrono::milliseconds(300);
  limits.memory_bytes = std::size_t{64} << 20;
  limits.source_bytes = source_bytes;
  return limits;
}
