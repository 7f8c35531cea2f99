#include "scheduler/block_pool.h"

#include <gtest/gtest.h>

#include <utility>

namespace quire {
namespace {

class BlockPoolTest : public ::testing::Test {
 protected:
  std::vector<int32_t> evicted_;
  BlockPool pool_{4, [this](int32_t id) { evicted_.push_back(id); }};
};

TEST_F(BlockPoolTest, ABlockFreesItself) {
  {
    const BlockRef a = pool_.take();
    const BlockRef b = pool_.take();
    EXPECT_NE(a.id(), b.id());
    EXPECT_EQ(pool_.num_free(), 2);
  }
  EXPECT_EQ(pool_.num_free(), 4);
}

TEST_F(BlockPoolTest, ACopySharesAndAMoveDoesNot) {
  BlockRef a = pool_.take();
  std::vector<int32_t> held(4);
  {
    const std::vector<BlockRef> copies(1, a);
    const BlockRef& copy = copies[0];
    EXPECT_EQ(copy.id(), a.id());
    EXPECT_EQ(pool_.ref_count(a.id()), 2);
    EXPECT_EQ(pool_.num_free(), 3);
    held[static_cast<size_t>(a.id())] = 2;
    pool_.check_integrity(held);
  }
  const BlockRef moved = std::move(a);
  EXPECT_EQ(pool_.ref_count(moved.id()), 1);
  BlockRef other = pool_.take();
  const int32_t freed = other.id();
  other = moved;
  EXPECT_EQ(pool_.ref_count(moved.id()), 2);
  EXPECT_EQ(pool_.ref_count(freed), 0);
  EXPECT_EQ(pool_.num_free(), 3);
}

TEST_F(BlockPoolTest, BlocksWithoutContentsAreTakenFirstThenTheLeastRecentlyFreed) {
  std::vector<BlockRef> all;
  all.reserve(4);
  for (int i = 0; i < 4; ++i) all.push_back(pool_.take());
  pool_.mark_cached(2);
  pool_.mark_cached(0);
  for (const int32_t id : {2, 1, 0, 3}) {
    std::erase_if(all, [id](const BlockRef& block) { return block.id() == id; });
  }
  pool_.check_integrity(std::vector<int32_t>(4));

  for (int i = 0; i < 4; ++i) all.push_back(pool_.take());
  EXPECT_EQ(all[0].id() + all[1].id(), 4);  // 1 and 3
  EXPECT_EQ(all[2].id(), 2);
  EXPECT_EQ(all[3].id(), 0);
  EXPECT_EQ(evicted_, (std::vector<int32_t>{2, 0}));
  EXPECT_FALSE(pool_.is_cached(2));
}

TEST_F(BlockPoolTest, SharingAFreeCachedBlockKeepsItsContents) {
  int32_t id = -1;
  {
    const BlockRef block = pool_.take();
    id = block.id();
    pool_.mark_cached(id);
  }
  const BlockRef again = pool_.share(id);
  EXPECT_EQ(pool_.num_free(), 3);
  const BlockRef b = pool_.take(), c = pool_.take(), d = pool_.take();
  EXPECT_TRUE(evicted_.empty());
  EXPECT_TRUE(pool_.is_cached(id));
}

TEST_F(BlockPoolTest, MisuseAborts) {
  EXPECT_DEATH(pool_.share(4), "no such block");
  EXPECT_DEATH(pool_.mark_cached(0), "in use");
  const BlockRef a = pool_.take(), b = pool_.take(), c = pool_.take(), d = pool_.take();
  EXPECT_DEATH(pool_.take(), "no block is free");
  EXPECT_DEATH(pool_.check_integrity(std::vector<int32_t>(4)), "as often as it is held");
}

}  // namespace
}  // namespace quire
