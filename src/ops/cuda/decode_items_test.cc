#include "ops/cuda/decode_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace quire::ops {
namespace {

std::vector<DecodeItem> items_of(const std::vector<int32_t>& context_lens) {
  std::vector<DecodeItem> items = make_decode_items(context_lens);
  EXPECT_EQ(write_decode_items(context_lens, nullptr, items.data()),
            static_cast<int64_t>(items.size()));
  return items;
}

int32_t size_of(const DecodeItem& item) {
  return std::min(kDecodeChunk, item.context_len - item.chunk * kDecodeChunk);
}

std::vector<std::vector<int32_t>> numbers(const std::vector<DecodeItem>& items) {
  std::vector<std::vector<int32_t>> result;
  for (const DecodeItem& item : items) {
    result.push_back({item.seq, item.chunk, item.first_row, item.context_len});
  }
  return result;
}

TEST(DecodeItems, PutsWholeChunksFirst) {
  using List = std::vector<std::vector<int32_t>>;
  EXPECT_EQ(numbers(items_of({17, 0, 1112, 512, 556, 17})), (List{{2, 0, 1, 1112},
                                                                  {2, 1, 1, 1112},
                                                                  {3, 0, 4, 512},
                                                                  {4, 0, 5, 556},
                                                                  {2, 2, 1, 1112},  // 88 tokens
                                                                  {4, 1, 5, 556},   // 44
                                                                  {0, 0, 0, 17},
                                                                  {5, 0, 7, 17}}));
  EXPECT_EQ(numbers(items_of({})), List{});
}

TEST(DecodeItems, HaveARowForEachQuery) {
  using List = std::vector<std::vector<int32_t>>;
  const std::vector<int32_t> context_lens = {600, 0, 20, 513};
  const std::vector<int32_t> query_start = {0, 3, 3, 8, 9};
  EXPECT_EQ(
      numbers(make_decode_items(context_lens, query_start.data())),
      (List{{0, 0, 0, 600}, {3, 0, 11, 513}, {0, 1, 0, 600}, {2, 0, 6, 20}, {3, 1, 11, 513}}));
}

TEST(DecodeItems, CoverEachTokenOnceInRowsOfTheirOwn) {
  std::mt19937 random(7);
  std::vector<int32_t> context_lens(200);
  for (int32_t& length : context_lens) length = static_cast<int32_t>(random() % 3000);
  const std::vector<DecodeItem> items = items_of(context_lens);
  std::set<int32_t> rows;
  int64_t tokens = 0;
  for (const DecodeItem& item : items) {
    EXPECT_EQ(item.context_len, context_lens[static_cast<size_t>(item.seq)]);
    EXPECT_GT(size_of(item), 0);
    EXPECT_TRUE(rows.insert(item.first_row + item.chunk).second);
    tokens += size_of(item);
  }
  EXPECT_EQ(tokens, std::accumulate(context_lens.begin(), context_lens.end(), int64_t{0}));
  EXPECT_EQ(*rows.rbegin(), static_cast<int32_t>(items.size()) - 1);
}

// Tokens of each of 132 blocks for 8 KV heads, as the kernels take them: an item for one KV head
// goes to the first block that is free.
std::vector<int64_t> tokens_of_blocks(const std::vector<int32_t>& context_lens) {
  constexpr size_t kBlocks = 132;
  constexpr size_t kSlots = 8;
  const std::vector<DecodeItem> items = items_of(context_lens);
  std::vector<int64_t> tokens(kBlocks);
  for (size_t unit = 0; unit < items.size() * kSlots; ++unit) {
    *std::ranges::min_element(tokens) += size_of(items[unit / kSlots]);
  }
  return tokens;
}

TEST(DecodeItems, AreAboutAsMuchForEachBlock) {
  std::mt19937 random(3);
  for (const int num_seqs : {64, 131, 256}) {
    std::vector<int32_t> context_lens(static_cast<size_t>(num_seqs));
    for (int32_t& length : context_lens) length = 100 + static_cast<int32_t>(random() % 1900);
    const std::vector<int64_t> tokens = tokens_of_blocks(context_lens);
    const auto [fewest, most] = std::minmax_element(tokens.begin(), tokens.end());
    EXPECT_LE(*most - *fewest, kDecodeChunk / 8) << num_seqs;
  }
  const std::vector<int64_t> tokens = tokens_of_blocks(std::vector<int32_t>(256, 560));
  const double mean = 256.0 * 560.0 * 8.0 / 132.0;
  EXPECT_LE(static_cast<double>(*std::ranges::max_element(tokens)), 1.01 * mean);
}

}  // namespace
}  // namespace quire::ops
