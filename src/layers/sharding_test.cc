#include "layers/sharding.h"

#include <gtest/gtest.h>

#include <array>

namespace quire {
namespace {

TEST(Sharding, ColumnParallelPutsSharesSideBySide) {
  const LinearShard shard = column_parallel_linear(std::array<int64_t, 2>{12, 6}, 5, true, {1, 3});
  EXPECT_EQ(shard.n, 4 + 2);
  EXPECT_EQ(shard.k, 5);
  EXPECT_FALSE(shard.partial_sum);
  ASSERT_EQ(shard.weight_parts.size(), 2u);
  EXPECT_EQ(shard.weight_parts[0].shape, (std::vector<int64_t>{12, 5}));
  EXPECT_EQ(shard.weight_parts[0].rows, (IndexRange{4, 8}));
  EXPECT_EQ(shard.weight_parts[1].rows, (IndexRange{2, 4}));
  EXPECT_EQ(shard.weight_parts[1].columns, (IndexRange{0, 5}));
  EXPECT_EQ(shard.weight_parts[1].first_row, 4);
  EXPECT_EQ(shard.bias_parts[1].shape, (std::vector<int64_t>{6}));
  EXPECT_EQ(shard.bias_parts[1].rows, (IndexRange{2, 4}));
  EXPECT_EQ(shard.bias_parts[1].columns, (IndexRange{0, 1}));
}

TEST(Sharding, RowParallelTakesColumnsAndSums) {
  const LinearShard shard = row_parallel_linear(7, 12, true, {2, 3});
  EXPECT_EQ(shard.n, 7);
  EXPECT_EQ(shard.k, 4);
  EXPECT_TRUE(shard.partial_sum);
  EXPECT_EQ(shard.weight_parts[0].rows, (IndexRange{0, 7}));
  EXPECT_EQ(shard.weight_parts[0].columns, (IndexRange{8, 12}));
  EXPECT_EQ(shard.bias_parts[0].rows, (IndexRange{0, 7}));
  EXPECT_FALSE(row_parallel_linear(7, 12, true, {0, 1}).partial_sum);
}

TEST(Sharding, QkvSplitsHeadsOfEachKind) {
  // 8 query heads and 4 KV heads of 2 elements over 2 ranks.
  const LinearShard shard = qkv_linear(10, 8, 4, 2, false, {1, 2});
  EXPECT_EQ(shard.n, (4 + 2 + 2) * 2);
  EXPECT_EQ(shard.weight_parts[0].rows, (IndexRange{8, 16}));
  EXPECT_EQ(shard.weight_parts[1].rows, (IndexRange{4, 8}));
  EXPECT_EQ(shard.weight_parts[1].first_row, 8);
  EXPECT_EQ(shard.weight_parts[2].rows, (IndexRange{4, 8}));
  EXPECT_EQ(shard.weight_parts[2].first_row, 12);
  EXPECT_TRUE(shard.bias_parts.empty());
}

TEST(Sharding, QkvGivesEachRankTheKvHeadOfItsQueryHeads) {
  // 8 query heads in groups of 4, over 8 ranks: query head r reads KV head r / 4.
  for (int rank = 0; rank < 8; ++rank) {
    const LinearShard shard = qkv_linear(10, 8, 2, 16, true, {rank, 8});
    EXPECT_EQ(shard.weight_parts[0].rows, (IndexRange{rank * 16, (rank + 1) * 16}));
    EXPECT_EQ(shard.weight_parts[1].rows, (IndexRange{rank / 4 * 16, (rank / 4 + 1) * 16}));
    EXPECT_EQ(shard.bias_parts[2].rows, shard.weight_parts[1].rows);
  }
}

TEST(Sharding, VocabularyShardsAreEqualAndPadded) {
  // 9 rows over 4 ranks: 3 each, the last holds nothing but padding.
  const std::array<IndexRange, 4> rows{{{0, 3}, {3, 6}, {6, 9}, {9, 9}}};
  for (int rank = 0; rank < 4; ++rank) {
    const VocabShard shard = vocab_shard(9, 5, {rank, 4});
    EXPECT_EQ(shard.rows, 3);
    EXPECT_EQ(shard.first_id, rank * 3);
    EXPECT_EQ(shard.parts[0].rows, rows[static_cast<size_t>(rank)]);
    EXPECT_EQ(shard.parts[0].shape, (std::vector<int64_t>{9, 5}));
  }
  EXPECT_EQ(vocab_shard(10, 5, {3, 4}).parts[0].rows, (IndexRange{9, 10}));
}

}  // namespace
}  // namespace quire
