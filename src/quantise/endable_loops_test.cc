#include "quantise/endable_loops.h"

#include <gtest/gtest.h>

#include <atomic>

namespace quire {
namespace {

TEST(EndableLoops, RunsEveryTask) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum = 0;
  EndableLoops(pool).parallel_for(100, [&](int64_t task) { sum += task; });
  EXPECT_EQ(sum, 4950);
}

TEST(EndableLoops, EndsWithinALoop) {
  ThreadPool pool(1);
  int asked = 0;
  int done = 0;
  const EndableLoops loops(pool, [&] { return ++asked <= 3; });
  EXPECT_THROW(loops.parallel_for(100, [&](int64_t) { ++done; }), WorkEnded);
  EXPECT_EQ(done, 3);
  EXPECT_THROW(loops.check_point(), WorkEnded);
}

}  // namespace
}  // namespace quire
