#include "runner/rank_layout.h"

#include "base/check.h"

namespace quire {

std::vector<int> nodes_of_ranks(int tensor_parallel_size, int pipeline_parallel_size,
                                int num_nodes) {
  const int num_ranks = tensor_parallel_size * pipeline_parallel_size;
  check(num_nodes >= 1 && num_ranks % num_nodes == 0, "nodes have equally many ranks");
  const int ranks_per_node = num_ranks / num_nodes;
  const int sampling_rank = num_ranks - tensor_parallel_size;
  const int first_node = num_nodes - sampling_rank / ranks_per_node;
  std::vector<int> nodes;
  for (int rank = 0; rank < num_ranks; ++rank) {
    nodes.push_back((rank / ranks_per_node + first_node) % num_nodes);
  }
  return nodes;
}

}  // namespace quire
