#include "ops/cpu/vector_loops.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/cpu/dispatch.h"
#include "ops/op_test_util.h"

namespace quire::ops {
namespace {

class VectorLoopsTest : public IsaTest {};

// Each count, so that a vector ends at any place of a register; the arrays end where the values do.
TEST_P(VectorLoopsTest, GivesTheBitsOfPlainLoops) {
  std::mt19937 random(7);
  const Kernels& kernels = kernels_for(GetParam());
  for (int count = 1; count < 150; ++count) {
    OwnedTensor<float> a = random_tensor({count}, random);
    OwnedTensor<float> b = random_tensor({count}, random);
    const float* const from = a.values().data();
    const float sum = kernels.dot(from, b.values().data(), count);
    const float plain_sum = scalar::dot(from, b.values().data(), count);
    EXPECT_EQ(std::memcmp(&sum, &plain_sum, sizeof(sum)), 0) << count;
    OwnedTensor<float> plain_to = b;
    kernels.add_scaled(-1.7f, from, count, b.values().data());
    scalar::add_scaled(-1.7f, from, count, plain_to.values().data());
    EXPECT_TRUE(b.same_bits(plain_to)) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, VectorLoopsTest, testing::ValuesIn(supported_isas()), isa_test_name);

TEST(VectorLoops, AreWhatTheySay) {
  std::mt19937 random(8);
  OwnedTensor<float> a = random_tensor({1000}, random);
  OwnedTensor<float> b = random_tensor({1000}, random);
  double sum = 0;
  for (size_t i = 0; i < 1000; ++i) sum += double{a.values()[i]} * b.values()[i];
  EXPECT_NEAR(dot(a.values().data(), b.values().data(), 1000), sum, 1e-4);
  OwnedTensor<float> to = b;
  add_scaled(0.3f, a.values().data(), 1000, to.values().data());
  for (size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(to.values()[i], std::fma(0.3f, a.values()[i], b.values()[i]));
  }
}

// What is not finite stays within its sum, whatever lies behind the arrays' ends.
TEST_P(VectorLoopsTest, TakesNumbersThatAreNotFinite) {
  const Kernels& kernels = kernels_for(GetParam());
  const std::vector<float> a = {1, INFINITY, 2};
  std::vector<float> b = {1, 1, 1};
  EXPECT_EQ(kernels.dot(a.data(), b.data(), 3), INFINITY);
  EXPECT_EQ(kernels.dot(a.data(), b.data(), 1), 1);
  kernels.add_scaled(1, a.data(), 3, b.data());
  EXPECT_EQ(b, (std::vector<float>{2, INFINITY, 3}));
}

}  // namespace
}  // namespace quire::ops
