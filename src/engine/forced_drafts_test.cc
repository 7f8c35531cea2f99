#include "engine/forced_drafts.h"

#include <gmock/gmock.h>

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ForcedDrafts, SequencesAreWorthWaitingForAtFirst) {
  ForcedDrafts drafts;
  EXPECT_FALSE(drafts.drafts_next());
  drafts.append(7, 1, 0);
  EXPECT_TRUE(drafts.drafts_next());
  EXPECT_THAT(drafts.take_ready(), ElementsAre(7));
  EXPECT_THAT(drafts.take_ready(), IsEmpty());
}

TEST(ForcedDrafts, OneWithoutForcedTokensIsNotWaitedForUntilItHasSome) {
  ForcedDrafts drafts;
  for (int i = 0; i < 20; ++i) drafts.append(7, 1, 0);
  EXPECT_FALSE(drafts.drafts_next());
  drafts.append(7, 2, 2);
  EXPECT_TRUE(drafts.drafts_next());
}

TEST(ForcedDrafts, WhatEndedIsForgotten) {
  ForcedDrafts drafts;
  drafts.append(7, 4, 3);
  drafts.append(8, 1, 0);
  drafts.remove(7);
  drafts.remove(9);
  EXPECT_THAT(drafts.take_ready(), ElementsAre(8));
  drafts.remove(8);
  EXPECT_FALSE(drafts.drafts_next());
}

}  // namespace
}  // namespace quire
