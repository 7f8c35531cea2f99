#pragma once
// The machine's own limits with an engine's threads. Thread safety: one caller at a time.
#include "base/cpu_features.h"
#include "core/dtype.h"
#include "quire/benchmark.h"

namespace quire {

MachineLimits measure_machine(int threads, Isa isa, DType dtype);

}  // namespace quire
