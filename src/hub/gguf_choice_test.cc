#include "hub/gguf_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/error.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<std::string> kNames = {"README.md",
                                         "mmproj-F16.gguf",
                                         "Model-1B-Q4_K.gguf",
                                         "Model-1B-Q4_K_M.gguf",
                                         "model.q8_0.gguf",
                                         "BF16/Model-1B-BF16-00002-of-00002.gguf",
                                         "BF16/Model-1B-BF16-00001-of-00002.gguf"};

std::string choice_error(std::string_view variant, const std::vector<std::string>& names = kNames) {
  try {
    choose_gguf(names, variant, "org/name");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GgufChoiceTest, AColonSaysWhich) {
  EXPECT_EQ(parse_gguf_name("org/name:Q8_0").model, "org/name");
  EXPECT_EQ(parse_gguf_name("org/name:Q8_0").variant, "Q8_0");
  EXPECT_EQ(parse_gguf_name("org/name").variant, "");
  EXPECT_EQ(parse_gguf_name("https://host/name").model, "https://host/name");
}

TEST(GgufChoiceTest, TakesTheNameThatEndsSo) {
  EXPECT_THAT(choose_gguf(kNames, "Q4_K", ""), ElementsAre("Model-1B-Q4_K.gguf"));
  EXPECT_THAT(choose_gguf(kNames, "q4_k_m", ""), ElementsAre("Model-1B-Q4_K_M.gguf"));
  EXPECT_THAT(choose_gguf(kNames, "Q8_0", ""), ElementsAre("model.q8_0.gguf"));
  EXPECT_THAT(choose_gguf(kNames, "model.q8_0.gguf", ""), ElementsAre("model.q8_0.gguf"));
  EXPECT_THAT(choose_gguf(kNames, "BF16", ""),
              ElementsAre("BF16/Model-1B-BF16-00001-of-00002.gguf",
                          "BF16/Model-1B-BF16-00002-of-00002.gguf"));
  EXPECT_THAT(choose_gguf({"x.txt", "m.gguf"}, "", ""), ElementsAre("m.gguf"));
}

TEST(GgufChoiceTest, SaysWhatIsThere) {
  EXPECT_THAT(choice_error(""), HasSubstr("org/name: there are 4 GGUF models: "
                                          "BF16/Model-1B-BF16-00001-of-00002.gguf, Model-1B-Q4_K"));
  EXPECT_THAT(choice_error(""), HasSubstr("such as org/name:Q4_K_M"));
  EXPECT_THAT(choice_error("4_K"), HasSubstr("no GGUF file's name ends in 4_K; there are BF16/"));
  EXPECT_THAT(choice_error("Q8_0", {"a-Q8_0.gguf", "b-Q8_0.gguf"}),
              HasSubstr("2 GGUF models are called Q8_0: a-Q8_0.gguf, b-Q8_0.gguf"));
  EXPECT_THAT(choice_error("", {"mmproj.gguf"}), HasSubstr("org/name: there is no GGUF file."));
  EXPECT_FALSE(holds_gguf({"mmproj.gguf", ".gguf", "x"}));
  EXPECT_TRUE(holds_gguf(kNames));
}

}  // namespace
}  // namespace quire
