#include "scheduler/prefix_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <optional>

namespace quire {
namespace {

constexpr int kBlockSize = 4;

// Files `block_ids` under the full blocks of `token_ids`.
void file(PrefixCache& cache, const std::vector<int32_t>& token_ids, std::string_view extra_key,
          const std::vector<int32_t>& block_ids) {
  std::vector<BlockHash> hashes;
  cache.extend_hashes(TokenView(token_ids), extra_key, hashes);
  ASSERT_LE(block_ids.size(), hashes.size());
  for (size_t i = 0; i < block_ids.size(); ++i) {
    if (cache.contains(block_ids[i])) continue;
    const auto parent = i == 0 ? std::nullopt : std::optional(block_ids[i - 1]);
    const auto tokens = std::span(token_ids).subspan(i * kBlockSize, kBlockSize);
    cache.insert(block_ids[i], parent, tokens, extra_key, hashes[i]);
    cache.check_filed(block_ids[i], parent, tokens, extra_key);
  }
  cache.check_integrity();
}

std::vector<int32_t> find(const PrefixCache& cache, const std::vector<int32_t>& token_ids,
                          std::string_view extra_key = "") {
  std::vector<BlockHash> hashes;
  cache.extend_hashes(TokenView(token_ids), extra_key, hashes);
  return cache.lookup(TokenView(token_ids), extra_key, hashes);
}

std::vector<int32_t> iota(int count, int first = 0) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

using Numbers = std::vector<int32_t>;

TEST(PrefixCacheTest, FindsTheLongestPrefixOfFullBlocks) {
  PrefixCache cache(kBlockSize);
  file(cache, iota(12), "", {7, 8, 9});
  EXPECT_EQ(find(cache, iota(12)), (Numbers{7, 8, 9}));
  EXPECT_EQ(find(cache, iota(30)), (Numbers{7, 8, 9}));
  EXPECT_EQ(find(cache, iota(11)), (Numbers{7, 8}));
  EXPECT_EQ(find(cache, iota(3)), Numbers{});
  Numbers forked = iota(12);
  forked[5] = 99;
  EXPECT_EQ(find(cache, forked), Numbers{7});
  EXPECT_EQ(find(cache, iota(8, 4)), Numbers{});  // equal tokens, but not after the same ones
}

TEST(PrefixCacheTest, TheExtraKeySeparates) {
  PrefixCache cache(kBlockSize);
  file(cache, iota(8), "alice", {1, 2});
  file(cache, iota(8), "bob", {3, 4});
  EXPECT_EQ(find(cache, iota(8)), Numbers{});
  EXPECT_EQ(find(cache, iota(8), "alice"), (Numbers{1, 2}));
  EXPECT_EQ(find(cache, iota(8), "bob"), (Numbers{3, 4}));
}

TEST(PrefixCacheTest, AnEvictedBlockEndsThePrefix) {
  PrefixCache cache(kBlockSize);
  file(cache, iota(12), "", {0, 1, 2});
  cache.erase(1);
  cache.check_integrity();
  EXPECT_EQ(find(cache, iota(12)), Numbers{0});
  // Computed anew, the contents are those that block 2 was filed after.
  file(cache, iota(12), "", {0, 5});
  EXPECT_EQ(find(cache, iota(12)), (Numbers{0, 5, 2}));
}

TEST(PrefixCacheTest, NodesGoWithTheirLastBlock) {
  PrefixCache cache(kBlockSize);
  file(cache, iota(12), "", {0, 1, 2});
  cache.erase(0);
  cache.erase(1);
  EXPECT_EQ(cache.num_blocks(), 1);
  EXPECT_EQ(cache.num_nodes(), 3);
  cache.erase(2);
  cache.check_integrity();
  EXPECT_EQ(cache.num_nodes(), 0);
}

TEST(PrefixCacheTest, TwoBlocksOfTheSameContentsServeOneAfterTheOther) {
  PrefixCache cache(kBlockSize);
  file(cache, iota(8), "", {0, 1});
  file(cache, iota(12), "", {2, 3, 4});
  EXPECT_EQ(find(cache, iota(12)), (Numbers{0, 1, 4}));
  cache.erase(0);
  cache.erase(1);
  cache.check_integrity();
  EXPECT_EQ(find(cache, iota(12)), (Numbers{2, 3, 4}));
}

// With a hash that always collides, only comparing tells contents apart.
TEST(PrefixCacheTest, CollisionsNeverShareAnothersBlocks) {
  PrefixCache cache(kBlockSize,
                    [](BlockHash, std::span<const int32_t>, std::string_view) { return 42u; });
  const Numbers a = iota(4), b = iota(4, 100), shared_end = iota(4, 50);
  Numbers a_end = a, b_end = b;
  a_end.insert(a_end.end(), shared_end.begin(), shared_end.end());
  b_end.insert(b_end.end(), shared_end.begin(), shared_end.end());

  file(cache, a_end, "", {0, 1});
  EXPECT_EQ(find(cache, b), Numbers{});
  EXPECT_EQ(find(cache, a, "salt"), Numbers{});
  file(cache, b, "", {2});
  // The tokens of the second block are equal and so is the hash: only the parent differs.
  EXPECT_EQ(find(cache, b_end), Numbers{2});
  EXPECT_EQ(find(cache, a_end), (Numbers{0, 1}));
  file(cache, b_end, "", {2, 3});
  file(cache, a_end, "salt", {4, 5});
  EXPECT_EQ(find(cache, b_end), (Numbers{2, 3}));
  EXPECT_EQ(find(cache, a_end), (Numbers{0, 1}));
  EXPECT_EQ(find(cache, a_end, "salt"), (Numbers{4, 5}));
  for (int32_t id = 0; id < 6; ++id) cache.erase(id);
  cache.check_integrity();
  EXPECT_EQ(cache.num_nodes(), 0);
}

// A parent that was evicted and came back under the same hash, but with other tokens.
TEST(PrefixCacheTest, AParentIsKnownByIdentityAndNotByHash) {
  PrefixCache cache(kBlockSize,
                    [](BlockHash, std::span<const int32_t>, std::string_view) { return 42u; });
  Numbers a = iota(4), b = iota(4, 100);
  const Numbers end = iota(4, 50);
  a.insert(a.end(), end.begin(), end.end());
  b.insert(b.end(), end.begin(), end.end());
  file(cache, a, "", {0, 1});
  cache.erase(0);
  file(cache, b, "", {0});
  EXPECT_EQ(find(cache, b), Numbers{0});
  EXPECT_EQ(find(cache, a), Numbers{});
}

TEST(PrefixCacheTest, HashesDependOnEveryPart) {
  const Numbers tokens = iota(4);
  const BlockHash hash = hash_block(1, tokens, "key");
  EXPECT_EQ(hash, hash_block(1, tokens, "key"));
  EXPECT_NE(hash, hash_block(2, tokens, "key"));
  EXPECT_NE(hash, hash_block(1, tokens, "kex"));
  EXPECT_NE(hash, hash_block(1, iota(4, 1), "key"));
}

TEST(PrefixCacheTest, FilingABlockTwiceAborts) {
  PrefixCache cache(kBlockSize);
  file(cache, iota(4), "", {0});
  EXPECT_DEATH(cache.insert(0, std::nullopt, iota(4, 9), "", 1), "one content");
  EXPECT_DEATH(cache.erase(3), "filed");
}

}  // namespace
}  // namespace quire
