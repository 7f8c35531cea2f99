#include "request/lora_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(LoraOrder, IsTheSameAfterItWasBytes) {
  const LoraOrder order{uint64_t{1} << 40, std::string(64, 'a'), "/adapters/a b"};
  EXPECT_EQ(decode_lora_order(encode_lora_order(order)), order);
}

TEST(LoraOrder, ThatIsCutOffIsRefused) {
  const auto bytes = encode_lora_order({7, "hash", "p"});
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(decode_lora_order(std::span(bytes).first(size)), Error) << size;
  }
}

TEST(LoraOrder, NeedsANumberAndAPath) {
  EXPECT_THAT(
      [] {
        decode_lora_order(encode_lora_order({0, "hash", "p"}));
      },
      ThrowsMessage<Error>(HasSubstr("an adapter has no number")));
  EXPECT_THAT(
      [] {
        decode_lora_order(encode_lora_order({1, "hash", std::string(1, '\0')}));
      },
      ThrowsMessage<Error>(HasSubstr("an adapter has no path")));
}

TEST(ForgottenLoras, AreTheSameAfterTheyWereBytes) {
  for (const std::vector<uint64_t>& ids : {std::vector<uint64_t>(), {1}, {3, ~uint64_t{0}}}) {
    const auto bytes = encode_forgotten_loras(ids);
    EXPECT_TRUE(are_forgotten_loras(bytes));
    EXPECT_EQ(decode_forgotten_loras(bytes), ids);
  }
  auto bytes = encode_forgotten_loras(std::vector<uint64_t>{1});
  bytes.pop_back();
  EXPECT_THROW(decode_forgotten_loras(bytes), Error);
  EXPECT_FALSE(are_forgotten_loras(encode_lora_order({7, "hash", "p"})));
  EXPECT_FALSE(are_forgotten_loras({}));
}

}  // namespace
}  // namespace quire
