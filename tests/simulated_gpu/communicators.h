#pragma once
// Ranks on simulated GPUs: what they say to each other is queued on their streams like any kernel.
#include <memory>
#include <span>
#include <vector>

#include "core/device_library.h"
#include "dist/communicator.h"

namespace quire::simulated {

std::vector<std::unique_ptr<Communicator>> make_communicators(std::span<const int> gpus);
// Ranks of several processes; part.id is that of a SharedMemory.
std::vector<std::unique_ptr<Communicator>> join_group(const GroupPart& part);

}  // namespace quire::simulated
