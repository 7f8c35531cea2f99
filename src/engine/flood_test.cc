// How long a client waits in the engine beside one that floods it, in steps.
#include <gtest/gtest.h>

#include "engine/flood_test_util.h"

namespace quire {
namespace {

TEST(Flood, AnothersShortRequestBeginsWithinTwoSteps) {
  engine_test::expect_floods_to_be_passed("cpu");
}

// So that the bound above says something: within a client the first come are served first.
TEST(Flood, ItsOwnClientWaits) {
  engine_test::Flood flood(32, 2000, /*visitor=*/engine_test::Flood::kFlooder);
  EXPECT_TRUE(flood.waits(engine_test::flooded_config("cpu"), /*num_visits=*/2).empty());
}

}  // namespace
}  // namespace quire
