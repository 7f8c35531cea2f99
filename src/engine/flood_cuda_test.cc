// How long a client waits in an engine on a GPU beside one that floods it, in steps.
#include <gtest/gtest.h>

#include "engine/flood_test_util.h"
#include "engine/gpu_test_util.h"

namespace quire {
namespace {

TEST(FloodCuda, AnothersShortRequestBeginsWithinTwoSteps) {
  QUIRE_SKIP_WITHOUT_GPUS(1);
  engine_test::expect_floods_to_be_passed("cuda");
}

}  // namespace
}  // namespace quire
