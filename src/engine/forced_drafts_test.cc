#include "engine/forced_drafts.h"

#include <gmock/gmock.h>

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ForcedDrafts, SequencesAreWorthWaitingForAtFirst) {
  ForcedDrafts drafts;
  EXPECT_FALSE(drafts.drafts_next());
  drafts.append(7, 0);
  EXPECT_TRUE(drafts.drafts_next());
  EXPECT_THAT(drafts.take_ready(), ElementsAre(7));
  EXPECT_THAT(drafts.take_ready(), IsEmpty());
}

TEST(ForcedDrafts, OneWhoseDraftsAreNotKeptIsWaitedForNowAndThen) {
  ForcedDrafts drafts;
  int num_waited = 0;
  for (int i = 0; i < 20 + 4 * ForcedDrafts::kProbeInterval; ++i) {
    drafts.append(7, 0);
    if (i >= 20) num_waited += drafts.drafts_next() ? 1 : 0;
  }
  EXPECT_EQ(num_waited, 4);
  for (int i = 0; i < 3; ++i) drafts.append(7, 3);
  EXPECT_TRUE(drafts.drafts_next());
}

TEST(ForcedDrafts, WhereNothingWaitsEachOutputIsAskedFor) {
  ForcedDrafts drafts(/*waits=*/false);
  for (int i = 0; i < 40; ++i) {
    drafts.append(7, 0);
    EXPECT_FALSE(drafts.drafts_next());
    EXPECT_THAT(drafts.take_ready(), ElementsAre(7));
  }
  drafts.append(7, 0);
  drafts.remove(7);
  EXPECT_THAT(drafts.take_ready(), IsEmpty());
}

TEST(ForcedDrafts, KnowsWhichDraftsAreForced) {
  ForcedDrafts drafts;
  EXPECT_FALSE(drafts.take_proposed(7));
  drafts.propose(7);
  EXPECT_TRUE(drafts.take_proposed(7));
  EXPECT_FALSE(drafts.take_proposed(7)) << "they ran";
  drafts.propose(7);
  drafts.remove(7);
  EXPECT_FALSE(drafts.take_proposed(7));
}

TEST(ForcedDrafts, WhatEndedIsForgotten) {
  ForcedDrafts drafts;
  drafts.append(7, 3);
  drafts.append(8, 0);
  drafts.remove(7);
  drafts.remove(9);
  EXPECT_THAT(drafts.take_ready(), ElementsAre(8));
  drafts.remove(8);
  EXPECT_FALSE(drafts.drafts_next());
}

}  // namespace
}  // namespace quire
