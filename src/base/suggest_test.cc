#include "base/suggest.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(ClosestName, FindsWhatWasMistyped) {
  const std::vector<std::string> names = {"temperature", "top_k", "top_p", "stop"};
  EXPECT_EQ(closest_name("temprature", names), "temperature");
  EXPECT_EQ(closest_name("tmeperature", names), "temperature");
  EXPECT_EQ(closest_name("topp", names), "top_p");
  EXPECT_EQ(closest_name("sotp", names), "stop");
  EXPECT_EQ(closest_name("zzzz", names), std::nullopt);
  EXPECT_EQ(closest_name("", names), std::nullopt);
  EXPECT_EQ(closest_name("v", {"n"}), std::nullopt);
  EXPECT_EQ(closest_name(std::string(100000, 'a'), names), std::nullopt);
}

TEST(DidYouMean, IsEmptyWhereNothingIsClose) {
  EXPECT_EQ(did_you_mean("stopp", {"stop"}), "; did you mean stop?");
  EXPECT_EQ(did_you_mean("other", {"stop"}), "");
}

}  // namespace
}  // namespace quire
