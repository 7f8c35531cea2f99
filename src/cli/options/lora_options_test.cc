#include "cli/options/lora_options.h"

#include <gtest/gtest.h>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

std::string refused(const std::string& text) {
  try {
    parse_lora_module(text, "--lora-modules");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(LoraModuleOption, NameAndPath) {
  const LoraModuleArgument plain = parse_lora_module("caps=/adapters/a=b", "--lora-modules");
  EXPECT_EQ(plain.adapter.name, "caps");
  EXPECT_EQ(plain.adapter.path, "/adapters/a=b");
  EXPECT_EQ(plain.base_model_name, "");
  const LoraModuleArgument json = parse_lora_module(
      R"({"name": "a=b", "path": "x", "base_model_name": "base"})", "--lora-modules");
  EXPECT_EQ(json.adapter.name, "a=b");
  EXPECT_EQ(json.adapter.path, "x");
  EXPECT_EQ(json.base_model_name, "base");
}

TEST(LoraModuleOption, SaysWhatIsWrong) {
  for (const char* text : {"", "caps", "=path", "caps=", "{}", R"({"name": "a"})"}) {
    EXPECT_EQ(refused(text).find("--lora-modules: expected NAME=PATH"), 0u) << text;
  }
  EXPECT_EQ(refused(R"({"name": "a", "path": 7})"),
            "--lora-modules: \"path\" is 7; expected a string");
  EXPECT_NE(refused(R"({"nam": "a"})").find("\"nam\" is not known"), std::string::npos);
  EXPECT_NE(refused("{"), "");
  EXPECT_EQ(refused("a\nb=x"),
            "--lora-modules: the adapter's name \"a\\nb\" has control characters; expected none");
  EXPECT_EQ(refused(std::string(257, 'a') + "=x"),
            "--lora-modules: the adapter's name has 257 bytes; expected at most 256");
  EXPECT_EQ(refused(std::string(256, 'a') + "=x"), "");
}

TEST(LoraOption, NothingNeedsNothing) {
  EXPECT_FALSE(lora_options_for(GivenAdapters{}).enabled);
  EXPECT_THROW(lora_options_for(GivenAdapters{.adapters = {}, .copy_memory_bytes = 1}), UsageError);
}

TEST(LoraOption, NamesAreGivenOnce) {
  const std::vector<LoraPath> adapters{{"a", "x"}, {"b", "y"}};
  EXPECT_NO_THROW(check_new_name(adapters, "c", "--lora"));
  EXPECT_THROW(check_new_name(adapters, "b", "--lora"), UsageError);
}

}  // namespace
}  // namespace quire::cli
