#include "server/client_weights.h"

#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire::server {
namespace {

TEST(ClientWeights, AreHundredthsByName) {
  const ClientWeights weights({"key-1a2b3c4d=2", "10.0.0.7=0.25", "2001:db8::1=100"});
  EXPECT_EQ(weights.of("key-1a2b3c4d"), 200);
  EXPECT_EQ(weights.of("10.0.0.7"), 25);
  EXPECT_EQ(weights.of("2001:db8::1"), kMaxClientWeight);
  EXPECT_EQ(weights.of("10.0.0.8"), kDefaultClientWeight);
  EXPECT_EQ(ClientWeights().of("10.0.0.7"), kDefaultClientWeight);
}

TEST(ClientWeights, OthersAreRefused) {
  for (const char* setting : {"", "a", "=2", "a=", "a=x", "a=0", "a=-1", "a=0.001", "a=101",
                              "a=nan", "a=inf", "a=1 ", "a=1e9"}) {
    EXPECT_THROW(ClientWeights({setting}), Error) << setting;
  }
  EXPECT_THROW(ClientWeights({"a=1", "a=2"}), Error);
}

}  // namespace
}  // namespace quire::server
