#include "base/ceil_div.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace quire {
namespace {

TEST(CeilDiv, RoundsUp) {
  EXPECT_EQ(ceil_div(0, 16), 0);
  EXPECT_EQ(ceil_div(1, 16), 1);
  EXPECT_EQ(ceil_div(16, 16), 1);
  EXPECT_EQ(ceil_div(17, 16), 2);
  EXPECT_EQ(round_up(0, 8), 0);
  EXPECT_EQ(round_up(8, 8), 8);
  EXPECT_EQ(round_up(9, 8), 16);
}

TEST(CeilDiv, HasTheWiderType) {
  static_assert(std::is_same_v<decltype(ceil_div(int64_t{1}, 2)), int64_t>);
  static_assert(std::is_same_v<decltype(ceil_div(1, int64_t{2})), int64_t>);
  static_assert(std::is_same_v<decltype(round_up(size_t{1}, size_t{2})), size_t>);
  EXPECT_EQ(ceil_div(int64_t{1} << 40, 3), 366503875926);
}

}  // namespace
}  // namespace quire
