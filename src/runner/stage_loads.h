#pragma once
// What ranks and stages in other processes have done, as bytes on their way to the engine's
// process.
//
// Thread safety: free functions.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "runner/executor.h"

namespace quire {

using LoadOfStage = std::pair<int, StageLoad>;

// 8 bytes for `progress`, a number that grows while the process's ranks get on. Then 24 bytes for
// each stage: the stage, its steps and nanoseconds. The low byte first.
std::vector<std::byte> encode_stage_loads(uint64_t progress, std::span<const LoadOfStage> loads);
// 0 for bytes that encode_stage_loads() does not write.
uint64_t progress_in(std::span<const std::byte> bytes);
// Puts the loads into `stages`, at their places. Bytes that encode_stage_loads() does not write,
// and stages that are not there, change nothing.
void take_stage_loads(std::span<const std::byte> bytes, std::span<StageLoad> stages);

}  // namespace quire
