#include "grammar/number_dfa.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire::grammar {
namespace {

Decimal decimal(std::string_view text) {
  const std::optional<Decimal> value = Decimal::parse(text);
  EXPECT_TRUE(value) << text;
  return value.value_or(Decimal{});
}

TEST(Decimal, ReadsEveryNotation) {
  EXPECT_EQ(decimal("100").plain(), "100");
  EXPECT_EQ(decimal("-1.50e1").plain(), "-15");
  EXPECT_EQ(decimal("12e-4").plain(), "0.0012");
  EXPECT_EQ(decimal("-0.0").plain(), "0");
  EXPECT_EQ(decimal("0e99999999999999999999").plain(), "0");
  EXPECT_EQ(decimal("1e2").scientific(), decimal("100.00").scientific());
  EXPECT_NE(decimal("1").scientific(), decimal("-1").scientific());
  EXPECT_FALSE(Decimal::parse("1e2001"));
  EXPECT_FALSE(Decimal::parse("1e-99999999999999999999"));
  EXPECT_FALSE(Decimal::parse("1e"));
  EXPECT_FALSE(Decimal::parse("x"));
}

// Numbers in hundredths, which double has without error as whole numbers.
std::string hundredths(int value, bool short_form) {
  const int digits = std::abs(value);
  const std::string sign = value < 0 ? "-" : "";
  if (short_form && digits % 100 == 0) return fmt::format("{}{}", sign, digits / 100);
  if (short_form && digits % 10 == 0) {
    return fmt::format("{}{}.{}", sign, digits / 100, digits / 10 % 10);
  }
  return fmt::format("{}{}.{:02}", sign, digits / 100, digits % 100);
}

TEST(NumberDfa, BoundsCompareByValue) {
  Budget budget{CompileLimits{}};
  for (const int bound :
       {-1050, -1000, -999, -101, -100, -50, -1, 0, 1, 9, 10, 100, 150, 999, 1000}) {
    const Decimal limit = decimal(hundredths(bound, false));
    const DfaPtr at_least = bound_dfa(limit, Bound::kAtLeast, budget);
    const DfaPtr more_than = bound_dfa(limit, Bound::kMoreThan, budget);
    const DfaPtr at_most = bound_dfa(limit, Bound::kAtMost, budget);
    const DfaPtr less_than = bound_dfa(limit, Bound::kLessThan, budget);
    for (int value = -1200; value <= 1200; ++value) {
      for (const bool short_form : {false, true}) {
        const std::string text = hundredths(value, short_form);
        ASSERT_EQ(at_least->matches(text), value >= bound) << text << " and " << bound;
        ASSERT_EQ(more_than->matches(text), value > bound) << text << " and " << bound;
        ASSERT_EQ(at_most->matches(text), value <= bound) << text << " and " << bound;
        ASSERT_EQ(less_than->matches(text), value < bound) << text << " and " << bound;
      }
    }
  }
}

TEST(NumberDfa, MultiplesAndSets) {
  Budget budget{CompileLimits{}};
  const std::vector<Decimal> numbers = {decimal("1.5"), decimal("-3"), decimal("0")};
  const DfaPtr set = number_set_dfa(numbers, budget);
  const DfaPtr integer = integer_dfa(budget);
  for (const int divisor : {1, 5, 7, 10, 25, 100, 150, 300}) {
    const DfaPtr multiples = multiple_dfa(decimal(hundredths(divisor, false)), budget);
    for (int value = -1200; value <= 1200; ++value) {
      for (const bool short_form : {false, true}) {
        const std::string text = hundredths(value, short_form);
        ASSERT_EQ(multiples->matches(text), value % divisor == 0) << text << " by " << divisor;
        ASSERT_EQ(set->matches(text), value == 150 || value == -300 || value == 0) << text;
        ASSERT_EQ(integer->matches(text), value % 100 == 0) << text;
      }
    }
  }
  EXPECT_TRUE(set->matches("-0.00"));
}

TEST(NumberDfa, MultiplesOfLargeNumbers) {
  CompileLimits limits;
  limits.time = std::chrono::minutes(10);  // on a slow machine, under a sanitizer
  Budget budget{limits};
  // Factors of 10, of 2 and of 5, which digits at the end decide, and others.
  for (const int64_t divisor :
       {64L, 625L, 999L, 4096L, 7500L, 9973L, 100'000L, 999'999L / 37L, 1'000'000L, 86'400'000L,
        10'000'000'000L, 70'000'000'000'000'000L}) {
    const DfaPtr multiples = multiple_dfa(decimal(std::to_string(divisor)), budget);
    uint64_t random = 1;
    for (int i = 0; i < 3000; ++i) {
      random = random * 6364136223846793005 + 1442695040888963407;
      const auto value = static_cast<int64_t>(random >> 15);
      const int64_t near = value / (i % 2 == 0 ? 1 : 1'000'000'000) / divisor * divisor;
      for (const int64_t each : {value, near, near + 1, near + divisor / 2, near / 10, near * 10}) {
        ASSERT_EQ(multiples->matches(std::to_string(each)), each % divisor == 0)
            << each << " by " << divisor;
      }
    }
    EXPECT_TRUE(multiples->matches("-" + std::to_string(divisor) + ".00"));
    EXPECT_FALSE(multiples->matches(std::to_string(divisor) + ".01"));
  }
  EXPECT_LT(multiple_dfa(decimal("86400000"), budget)->num_states(), 2000);
  const DfaPtr small = multiple_dfa(decimal("0.00048"), budget);
  for (int value = 0; value < 10'000; ++value) {
    const std::string digits = std::to_string(100'000 + value);
    ASSERT_EQ(small->matches("0." + digits.substr(1)), value % 48 == 0) << digits;
    ASSERT_EQ(small->matches("1." + digits.substr(1)), (100'000 + value) % 48 == 0) << digits;
  }
  EXPECT_THROW(multiple_dfa(decimal("1000003"), budget), Error);
  EXPECT_THROW(multiple_dfa(decimal("1000000000000000007"), budget), Error);
}

TEST(NumberDfa, CombinationsAndLengths) {
  Budget budget{CompileLimits{}};
  const DfaPtr low = bound_dfa(decimal("10"), Bound::kAtLeast, budget);
  const DfaPtr high = bound_dfa(decimal("20"), Bound::kLessThan, budget);
  const DfaPtr range = combine(*low, *high, Combine::kBoth, budget);
  const DfaPtr either = combine(*low, *high, Combine::kEither, budget);
  const DfaPtr above = combine(*low, *high, Combine::kFirstOnly, budget);
  for (int value = -3000; value <= 3000; value += 50) {
    const std::string text = hundredths(value, true);
    EXPECT_EQ(range->matches(text), value >= 1000 && value < 2000) << text;
    EXPECT_TRUE(either->matches(text)) << text;
    EXPECT_EQ(above->matches(text), value >= 2000) << text;
  }
  const DfaPtr none = combine(*range, *above, Combine::kBoth, budget);
  EXPECT_TRUE(none->is_empty());
  EXPECT_EQ(none->start(), Dfa::kDead);

  const Dfa::Lengths lengths =
      combine(*range, *integer_dfa(budget), Combine::kBoth, budget)->lengths();
  EXPECT_EQ(lengths.fewest[0], 2U);
  EXPECT_EQ(lengths.most[0], Dfa::kUnbounded);
}

}  // namespace
}  // namespace quire::grammar
