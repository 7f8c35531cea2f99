#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quire {
namespace {

Float8E4M3 float8_of_bits(int bits) {
  Float8E4M3 value;
  value.bits = static_cast<uint8_t>(bits);
  return value;
}

bool is_nan(int bits) {
  return (bits & 0x7f) == 0x7f;
}

TEST(Float8E4M3, HasTheNumbersOfItsFormula) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto value = static_cast<float>(float8_of_bits(bits));
    const int exponent = bits >> 3 & 0xf;
    const int fraction = bits & 7;
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), -9)
                                : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
    EXPECT_EQ(std::signbit(value), bits >= 0x80) << bits;
    if (is_nan(bits)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(std::abs(value), magnitude) << bits;
    }
  }
}

TEST(Float8E4M3, EveryNumberGoesToFloatAndBack) {
  for (int bits = 0; bits < 256; ++bits) {
    EXPECT_EQ(Float8E4M3(static_cast<float>(float8_of_bits(bits))).bits, bits);
  }
}

// Between two neighbours: the nearer, and half way the one with an even fraction.
TEST(Float8E4M3, RoundsToNearestEven) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const auto low = static_cast<float>(float8_of_bits(bits));
    const auto high = static_cast<float>(float8_of_bits(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(Float8E4M3(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(Float8E4M3(std::nextafter(middle, 0.0f)).bits, bits);
    EXPECT_EQ(Float8E4M3(std::nextafter(middle, 1000.0f)).bits, bits + 1);
    EXPECT_EQ(Float8E4M3(-middle).bits, Float8E4M3(middle).bits | 0x80);
  }
}

TEST(Float8E4M3, EndsAtItsLargestNumber) {
  for (const float value : {448.0f, 449.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(static_cast<float>(Float8E4M3(value)), 448.0f);
    EXPECT_EQ(static_cast<float>(Float8E4M3(-value)), -448.0f);
  }
}

Float8E5M2 e5m2_of_bits(int bits) {
  Float8E5M2 value;
  value.bits = static_cast<uint8_t>(bits);
  return value;
}

TEST(Float8E5M2, HasTheNumbersOfItsFormulaAndTakesThemBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const auto value = static_cast<float>(e5m2_of_bits(bits));
    const int exponent = bits >> 2 & 0x1f;
    const int fraction = bits & 3;
    EXPECT_EQ(std::signbit(value), bits >= 0x80) << bits;
    if (exponent == 0x1f) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(value) : std::isnan(value)) << bits;
      continue;
    }
    const float magnitude = exponent == 0
                                ? std::ldexp(static_cast<float>(fraction), -16)
                                : std::ldexp(static_cast<float>(4 + fraction), exponent - 17);
    EXPECT_EQ(std::abs(value), magnitude) << bits;
    EXPECT_EQ(Float8E5M2(value).bits, bits);
  }
}

TEST(Float8E5M2, RoundsToNearestEven) {
  for (int bits = 0; bits < 0x7b; ++bits) {
    const auto low = static_cast<float>(e5m2_of_bits(bits));
    const auto high = static_cast<float>(e5m2_of_bits(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(Float8E5M2(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    EXPECT_EQ(Float8E5M2(std::nextafter(middle, 0.0f)).bits, bits);
    EXPECT_EQ(Float8E5M2(std::nextafter(middle, 1e6f)).bits, bits + 1);
    EXPECT_EQ(Float8E5M2(-middle).bits, Float8E5M2(middle).bits | 0x80);
  }
}

TEST(Float8E5M2, EndsAtItsLargestNumberAndKeepsNan) {
  for (const float value : {57344.0f, 61440.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(static_cast<float>(Float8E5M2(value)), 57344.0f);
    EXPECT_EQ(static_cast<float>(Float8E5M2(-value)), -57344.0f);
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8E5M2(nan))));
}

}  // namespace
}  // namespace quire
