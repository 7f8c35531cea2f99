#pragma once
// Which node each rank is on, where ranks are in several processes.
//
// Ranks are counted stage by stage. Each node has as many as the others, and they follow each
// other. Node 0 has rank 0 of the last stage, which samples: callbacks and masks are in its
// process. So the first ranks are on node 1 where there are several stages. Thread safety: free
// functions.
#include <vector>

namespace quire {

// `num_nodes` divides the number of ranks.
std::vector<int> nodes_of_ranks(int tensor_parallel_size, int pipeline_parallel_size,
                                int num_nodes);

}  // namespace quire
