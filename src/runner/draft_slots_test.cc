#include "runner/draft_slots.h"

#include <gtest/gtest.h>

#include <array>

namespace quire {
namespace {

constexpr std::array<int32_t, 3> kTable = {5, 2, 7};

TEST(DraftSlots, AreFilledFromTheFront) {
  DraftSlots slots(8, 4);
  EXPECT_EQ(slots.first_missing(kTable, 0), 0);
  EXPECT_EQ(slots.first_missing(kTable, 9), 0);
  slots.fill(kTable, 0, 6);
  EXPECT_EQ(slots.first_missing(kTable, 9), 6);
  EXPECT_EQ(slots.first_missing(kTable, 6), 6);
  EXPECT_EQ(slots.first_missing(kTable, 3), 3);
  slots.fill(kTable, 6, 12);
  EXPECT_EQ(slots.first_missing(kTable, 12), 12);
}

TEST(DraftSlots, OtherTokensEmptyThem) {
  DraftSlots slots(8, 4);
  slots.fill(kTable, 0, 12);
  slots.forget(kTable, 10, 12);  // two drafts were not kept
  EXPECT_EQ(slots.first_missing(kTable, 12), 10);
  slots.forget(kTable, 3, 5);
  EXPECT_EQ(slots.first_missing(kTable, 12), 3);
}

TEST(DraftSlots, ASharedBlockIsFilledForAll) {
  DraftSlots slots(8, 4);
  slots.fill(kTable, 0, 8);
  constexpr std::array<int32_t, 2> kOther = {5, 1};
  EXPECT_EQ(slots.first_missing(kOther, 7), 4);
  // A block that was given to another sequence is written from its first slot on.
  constexpr std::array<int32_t, 2> kNewOwner = {2, 5};
  slots.forget(kNewOwner, 0, 1);
  EXPECT_EQ(slots.first_missing(kNewOwner, 8), 0);
  EXPECT_EQ(slots.first_missing(kTable, 8), 4);
}

}  // namespace
}  // namespace quire
