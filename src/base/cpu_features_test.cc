#include "base/cpu_features.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(CpuFeatures, NamesGoBothWays) {
  for (Isa isa :
       {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni, Isa::kAvx512, Isa::kAmx})
    EXPECT_EQ(isa_from_name(name_of(isa)), isa);
  EXPECT_EQ(isa_from_name("AVX2"), std::nullopt);
  EXPECT_EQ(isa_from_name(""), std::nullopt);
}

TEST(CpuFeatures, ScalarIsAlwaysThereAndTheBestComesLast) {
  const std::vector<Isa> isas = supported_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::kScalar);
  EXPECT_EQ(isas.back(), best_isa());
  for (Isa isa : isas) EXPECT_TRUE(supports(isa));
}

}  // namespace
}  // namespace quire
