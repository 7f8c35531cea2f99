#pragma once
// What stages in other processes have done, as bytes on their way to the engine's process.
//
// Thread safety: free functions.
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "runner/executor.h"

namespace quire {

using LoadOfStage = std::pair<int, StageLoad>;

// 24 bytes for each: the stage, its steps and nanoseconds, the low byte first.
std::vector<std::byte> encode_stage_loads(std::span<const LoadOfStage> loads);
// Puts them into `stages`, at their places. Bytes that encode_stage_loads() does not write, and
// stages that are not there, change nothing.
void take_stage_loads(std::span<const std::byte> bytes, std::span<StageLoad> stages);

}  // namespace quire
