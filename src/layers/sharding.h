#pragma once
// How the linear layers of a model are split over the ranks of a tensor-parallel group.
//
// A LinearShard is plain data: which part of a layer a rank holds, and from which parts of which
// checkpoint tensors it comes. Sizes that cannot be split are refused when a model is configured,
// so here they are programmer errors. Thread safety: plain values.
#include <cstdint>
#include <span>
#include <vector>

#include "loader/parameter.h"

namespace quire {

// The rank's place in its tensor-parallel group.
struct ParallelRank {
  int rank = 0;
  int size = 1;
};

struct LinearShard {
  int64_t n = 0;  // output features of this rank
  int64_t k = 0;  // input features of this rank
  bool bias = false;
  // The rank's output is one term of a sum over the ranks.
  bool partial_sum = false;
  std::vector<ParameterPart> weight_parts = {};
  std::vector<ParameterPart> bias_parts = {};
};

// The whole layer on every rank.
LinearShard replicated_linear(int64_t n, int64_t k, bool bias);

// Each rank computes its share of the outputs of each of several fused layers [features[i], k]; the
// output holds the shares side by side. Each of `features` is a multiple of the number of ranks.
LinearShard column_parallel_linear(std::span<const int64_t> features, int64_t k, bool bias,
                                   ParallelRank at);

// Each rank multiplies its share of the inputs; outputs are summed over the ranks. k is a multiple
// of their number.
LinearShard row_parallel_linear(int64_t n, int64_t k, bool bias, ParallelRank at);

// KV heads of one rank: an equal share; with fewer heads than ranks one each, which several ranks
// share.
int64_t kv_heads_of_rank(int64_t num_kv_heads, int size);
// Which of the model's they are.
IndexRange kv_heads_at(int64_t num_kv_heads, ParallelRank at);

// q, k and v fused: this rank's query heads, then its key heads, then its value heads.
LinearShard qkv_linear(int64_t hidden_size, int64_t num_heads, int64_t num_kv_heads,
                       int64_t head_dim, bool bias, ParallelRank at);

// Rows of a vocabulary of `vocab_size` on one rank. All ranks have equally many, so the last may
// hold rows past the end of the vocabulary; these stay zero.
struct VocabShard {
  int64_t vocab_size = 0;
  int64_t first_id = 0;
  int64_t rows = 0;  // padding included
  std::vector<ParameterPart> parts;
};
VocabShard vocab_shard(int64_t vocab_size, int64_t hidden_size, ParallelRank at);

}  // namespace quire
