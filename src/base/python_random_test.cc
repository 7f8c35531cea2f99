#include "base/python_random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

using ::testing::ElementsAre;

template <typename Draw>
auto draw_many(int count, Draw draw) {
  std::vector<decltype(draw())> values;
  for (int i = 0; i < count; ++i) values.push_back(draw());
  return values;
}

// Every expected value below was printed by Python 3.11's random module.
TEST(PythonRandom, DrawsTheSameBits) {
  const auto first = [](uint64_t seed) {
    PythonRandom random(seed);
    return draw_many(4, [&] { return random.getrandbits(32); });
  };
  EXPECT_THAT(first(0), ElementsAre(3626764237, 1654615998, 3255389356, 3823568514));
  EXPECT_THAT(first(1), ElementsAre(577090037, 2444712010, 3639700191, 3445702192));
  EXPECT_THAT(first((uint64_t{1} << 40) + 7),
              ElementsAre(2635837658, 3209733218, 3500038837, 4028389051));
}

TEST(PythonRandom, DrawsTheSameIntegers) {
  PythonRandom random(0);
  EXPECT_THAT(draw_many(3, [&] { return random.randint(5, 5 + 1'000'000'000'000); }),
              ElementsAre(424533559250, 978212965553, 44756014170));
  random = PythonRandom(1);
  EXPECT_THAT(draw_many(3, [&] { return random.randint(5, 5 + 1'000'000'000'000); }),
              ElementsAre(623347347962, 884107995876, 71999863753));
}

TEST(PythonRandom, DrawsSmallAndNegativeRanges) {
  PythonRandom random((uint64_t{1} << 40) + 7);
  draw_many(3, [&] { return random.randint(5, 5 + 1'000'000'000'000); });
  // Two integers of 64 bits: Python draws randint(0, 2**64 - 1) as getrandbits(65) until it fits.
  const auto draw_65 = [&]() -> uint64_t {
    while (true) {
      const uint64_t low = random.getrandbits(64);
      if (random.getrandbits(1) == 0) return low;
    }
  };
  EXPECT_EQ(draw_65(), 7252883241063393929U);
  EXPECT_EQ(draw_65(), 3317005190873792410U);
  EXPECT_THAT(draw_many(2, [&] { return random.randint(7, 7); }), ElementsAre(7, 7));
  EXPECT_THAT(draw_many(6, [&] { return random.randint(-3, 4); }),
              ElementsAre(1, -2, 2, -1, -1, -3));
}

}  // namespace
}  // namespace quire
