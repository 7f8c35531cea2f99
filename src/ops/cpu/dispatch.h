#pragma once
// From an instruction set to its kernels.
#include "base/cpu_features.h"
#include "ops/cpu/kernels.h"

namespace quire::ops {

// The CPU must support `isa` to call what is in the table.
const Kernels& kernels_for(Isa isa);

}  // namespace quire::ops
