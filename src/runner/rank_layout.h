#pragma once
// Which node each rank is on, where ranks are in several processes.
//
// Ranks are numbered stage by stage. Each node has the same number of consecutive ranks. Node 0 has
// the last stage's rank 0, which samples, because callbacks and masks are in node 0's process. So
// with several stages the first ranks are on node 1. Thread safety: free functions.
#include <vector>

namespace quire {

// `num_nodes` divides the number of ranks.
std::vector<int> nodes_of_ranks(int tensor_parallel_size, int pipeline_parallel_size,
                                int num_nodes);

}  // namespace quire
