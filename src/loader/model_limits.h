#pragma once
// Sizes far beyond any model's; they keep products of sizes within 64 bits and positions within 32.
#include <cstdint>

namespace quire::loader_internal {

inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxHidden = int64_t{1} << 20;
inline constexpr int64_t kMaxIntermediate = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 30;
// Of RoPE.
inline constexpr double kMaxTheta = 1e15;
inline constexpr double kMaxFactor = 1e6;
inline constexpr double kTiny = 1e-9;  // the smallest value of what must be above 0

}  // namespace quire::loader_internal
