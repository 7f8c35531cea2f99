#pragma once
// The id in place of a token that could not be chosen. See ops/sampling.h.
#include <cstdint>

namespace quire::ops {

inline constexpr int32_t kNoToken = -1;

}  // namespace quire::ops
