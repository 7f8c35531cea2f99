#include "scheduler/fair_share.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "quire/engine_limits.h"

namespace quire::scheduler_internal {
namespace {

using Grants = std::vector<int64_t>;

TEST(FairShareTest, AllGetWhatTheyClaimWhereItIsEnough) {
  const std::vector<Claim> claims = {{0, 100, 30}, {5'000'000, 100, 70}};
  EXPECT_EQ(divide(100, claims), (Grants{30, 70}));
  EXPECT_EQ(divide(100, {}), Grants{});
}

TEST(FairShareTest, LevelClientsGetEqualPartsAndWhatOthersDoNotClaim) {
  const std::vector<Claim> claims = {{0, 100, 1000}, {0, 100, 10}, {0, 100, 1000}};
  EXPECT_EQ(divide(100, claims), (Grants{45, 10, 45}));
}

TEST(FairShareTest, TheLowestRiseFirst) {
  const VirtualTime ahead = token_cost(60, 100);
  const std::vector<Claim> claims = {{0, 100, 1000}, {ahead, 100, 1000}};
  EXPECT_EQ(divide(50, claims), (Grants{50, 0}));
  EXPECT_EQ(divide(100, claims), (Grants{80, 20}));
}

TEST(FairShareTest, PartsFollowWeights) {
  const std::vector<Claim> claims = {{0, 100, 1000}, {0, 300, 1000}};
  EXPECT_EQ(divide(100, claims), (Grants{25, 75}));
  EXPECT_EQ(token_cost(75, 300), token_cost(25, 100));
}

TEST(FairShareTest, RandomClaimsComeToOneLevel) {
  std::mt19937_64 random(1);
  const auto pick = [&random](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<Claim> claims(static_cast<size_t>(pick(1, 12)));
    int64_t claimed = 0;
    for (Claim& claim : claims) {
      claim.weight = static_cast<int32_t>(pick(1, 3) == 1 ? pick(1, kMaxClientWeight) : 100);
      claim.virtual_time = pick(0, 3) * pick(0, 1'000'000);
      claim.num_tokens = pick(0, 300);
      claimed += claim.num_tokens;
    }
    const int64_t num_tokens = pick(0, 1000);
    const Grants grants = divide(num_tokens, claims);
    EXPECT_EQ(std::accumulate(grants.begin(), grants.end(), int64_t{0}),
              std::min(num_tokens, claimed));
    for (size_t i = 0; i < claims.size(); ++i) {
      ASSERT_GE(grants[i], 0);
      ASSERT_LE(grants[i], claims[i].num_tokens);
      // Who got a token too many, from the view of who got less than it claims, had one part of it.
      if (grants[i] == 0) continue;
      const VirtualTime before_last =
          claims[i].virtual_time + token_cost(grants[i] - 1, claims[i].weight);
      for (size_t j = 0; j < claims.size(); ++j) {
        if (grants[j] == claims[j].num_tokens) continue;
        EXPECT_LE(before_last,
                  claims[j].virtual_time + token_cost(grants[j] + 1, claims[j].weight));
      }
    }
  }
}

TEST(FairShareTest, TheLevelRisesWithEveryStepAndNeverFalls) {
  VirtualClock clock;
  clock.advance(10, 100);
  EXPECT_EQ(clock.level(), token_cost(10, 100));
  clock.raise_to(token_cost(5, 100));
  EXPECT_EQ(clock.level(), token_cost(10, 100));
  clock.raise_to(token_cost(20, 100));
  EXPECT_EQ(clock.level(), token_cost(20, 100));
  // Rounded so that a client that had all of a step is not behind the level.
  clock.advance(1, 300);
  EXPECT_LE(clock.level(), token_cost(20, 100) + token_cost(1, 300));
}

}  // namespace
}  // namespace quire::scheduler_internal
