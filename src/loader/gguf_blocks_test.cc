#include "loader/gguf_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace quire {
namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// What scripts/make_gguf_goldens.py has from gguf-py.
TEST(GgufBlocksTest, ValuesAreThoseOfGgufPyBitForBit) {
  const auto path = std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/gguf/blocks.json";
  const auto golden = nlohmann::json::parse(std::ifstream(path));
  ASSERT_EQ(golden.size(), 12u);
  for (const auto& [name, parts] : golden.items()) {
    SCOPED_TRACE(name);
    const GgufType* type = find_gguf_type(name);
    ASSERT_NE(type, nullptr);
    ASSERT_NE(gguf_integers(*type), nullptr);
    const std::vector<std::byte> blocks = from_hex(parts["blocks"]);
    const std::vector<std::byte> expected = from_hex(parts["values"]);
    const auto count = static_cast<int64_t>(blocks.size()) / type->block_bytes;
    std::vector<float> values(static_cast<size_t>(count * type->block_values));
    ASSERT_EQ(values.size() * sizeof(float), expected.size());
    dequantise_gguf(*type, blocks.data(), count, values.data());
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), expected.size()), 0);
  }
}

TEST(GgufBlocksTest, OtherTypesHaveNoIntegers) {
  for (const char* name : {"F32", "F16", "BF16", "IQ2_XXS", "I32"}) {
    EXPECT_EQ(gguf_integers(*find_gguf_type(name)), nullptr) << name;
  }
  EXPECT_THAT(quantised_gguf_types(), testing::EndsWith("IQ4_NL and IQ4_XS"));
}

}  // namespace
}  // namespace quire
