#include "dist/gpu_claims.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "quire/error.h"

namespace quire {
namespace {

TEST(GpuClaims, RefuseWhatOverlaps) {
  GpuClaims claims;
  const GpuClaim first = claims.claim(std::vector{0, 1});
  const GpuClaim other = claims.claim(std::vector{2, 3});
  try {
    claims.claim(std::vector{4, 1});
    FAIL() << "GPU 1 was claimed twice";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("GPU 1 belongs to another engine"), 0u);
  }
  EXPECT_NO_THROW(claims.claim(std::vector{4}));  // what was refused claims nothing
}

TEST(GpuClaims, EndWithTheLastCopy) {
  GpuClaims claims;
  GpuClaim claim = claims.claim(std::vector{0, 1});
  GpuClaim copy = claim;
  claim.reset();
  EXPECT_THROW(claims.claim(std::vector{1, 2}), Error);
  copy.reset();
  EXPECT_NO_THROW(claims.claim(std::vector{1, 2}));
}

TEST(GpuClaims, MayNameAGpuTwice) {
  GpuClaims claims;
  const GpuClaim claim = claims.claim(std::vector{0, 0});
  EXPECT_THROW(claims.claim(std::vector{0}), Error);
}

TEST(GpuClaims, OutliveTheirOrigin) {
  GpuClaim claim;
  {
    GpuClaims claims;
    claim = claims.claim(std::vector{0});
  }
  EXPECT_TRUE(claim->contains(0));
}

TEST(GpuClaims, OneOfManyThreadsGetsIt) {
  GpuClaims claims;
  std::vector<GpuClaim> got(8);
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0;
  for (GpuClaim& claim : got) {
    threads.emplace_back([&] {
      try {
        claim = claims.claim(std::vector{0, 1});
      } catch (const Error&) {
        ++refused;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(refused, 7);
}

}  // namespace
}  // namespace quire
