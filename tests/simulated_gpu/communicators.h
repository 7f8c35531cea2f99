#pragma once
// Ranks on simulated GPUs: what they say to each other is queued on their streams like any kernel.
#include <memory>
#include <span>
#include <vector>

#include "dist/communicator.h"

namespace quire::simulated {

std::vector<std::unique_ptr<Communicator>> make_communicators(std::span<const int> gpus);

}  // namespace quire::simulated
