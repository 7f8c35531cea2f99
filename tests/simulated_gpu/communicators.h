#pragma once
// Ranks on simulated GPUs: what they say to each other is queued on their streams like any kernel.
#include <memory>
#include <vector>

#include "dist/communicator.h"

namespace quire::simulated {

std::vector<std::unique_ptr<Communicator>> make_communicators(int size);

}  // namespace quire::simulated
