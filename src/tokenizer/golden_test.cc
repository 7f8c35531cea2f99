// Every tokenizer in tests/golden/tokenizer against what Hugging Face's library says
// (scripts/make_tokenizer_goldens.py).
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "quire/tokenizer.h"
#include "tokenizer/golden_test_util.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string decode_piecewise(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                             bool skip_special_tokens) {
  IncrementalDetokenizer detokenizer(tokenizer, skip_special_tokens);
  std::string text;
  for (const std::int32_t id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path folder = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/tokenizer" / GetParam();
    tokenizer_.emplace(Tokenizer::from_json(read_maybe_packed(folder / "tokenizer.json")));
    golden_ = nlohmann::json::parse(read_maybe_packed(folder / "cases.json"));
  }

  void expect_text(const std::vector<std::int32_t>& ids, const std::string& plain,
                   const std::string& skipped) {
    EXPECT_EQ(tokenizer_->decode(ids), plain);
    EXPECT_EQ(tokenizer_->decode(ids, true), skipped);
    EXPECT_EQ(decode_piecewise(*tokenizer_, ids, false), plain);
    EXPECT_EQ(decode_piecewise(*tokenizer_, ids, true), skipped);
  }

  std::optional<Tokenizer> tokenizer_;
  nlohmann::json golden_;
};

TEST_P(TokenizerGolden, EncodesAndDecodesAsTheLibraryDoes) {
  ASSERT_GT(golden_["cases"].size(), 1000u);
  for (const auto& c : golden_["cases"]) {
    const auto text = c[0].get<std::string>();
    SCOPED_TRACE(testing::PrintToString(text));
    const auto ids = c[1].get<std::vector<std::int32_t>>();
    ASSERT_EQ(tokenizer_->encode(text), ids);
    const bool changed = c.size() > 2;
    expect_text(ids, changed ? c[2].get<std::string>() : text,
                changed ? c[3].get<std::string>() : text);
    if (HasFailure()) return;
  }
}

TEST_P(TokenizerGolden, DecodesRandomIdsAsTheLibraryDoes) {
  ASSERT_GT(golden_["decodes"].size(), 100u);
  for (const auto& c : golden_["decodes"]) {
    SCOPED_TRACE(c[0].dump());
    expect_text(c[0].get<std::vector<std::int32_t>>(), c[1].get<std::string>(),
                c[2].get<std::string>());
    if (HasFailure()) return;
  }
}

std::vector<std::string> golden_folders() {
  std::vector<std::string> names;
  const fs::path root = fs::path(QUIRE_SOURCE_DIR) / "tests/golden/tokenizer";
  for (const auto& entry : fs::directory_iterator(root)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Folders, TokenizerGolden, testing::ValuesIn(golden_folders()),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace quire
