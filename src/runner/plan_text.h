#pragma once
// What memory plans, and errors where one cannot be made, say of sizes and settings.
//
// Thread safety: free functions of their arguments.
#include <cstdint>
#include <string>

#include "runner/memory_plan.h"

namespace quire {

// "4.38 GiB", "12.5 MiB", "1 byte".
std::string size_text(int64_t bytes);
// Ends the description of what every rank has; empty where there is one.
std::string describe_ranks(const PlanRequest& request);
// The memory that a plan may take.
std::string available_memory_of(const PlanRequest& request);
// How to have more memory; opens a sentence.
std::string more_memory_advice(const PlanRequest& request);
// That the longest sequence may be what `blocks` hold; a sentence without its end.
std::string shorter_length_advice(const PlanRequest& request, int64_t blocks);
// How to have more KV cache; ends a sentence.
std::string larger_cache_advice(const PlanRequest& request);
// Goes behind what a slot of an adapter has.
std::string describe_copies(const PlanRequest& request);
// Ends advice on memory, where adapters take some.
std::string fewer_loras_advice(const PlanRequest& request);

}  // namespace quire
