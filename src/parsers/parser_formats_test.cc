#include "parsers/parser_formats.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "parsers/parser_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using parser_test::template_source;

void expect_formats(std::string_view source, ReasoningFormat reasoning, ToolFormat tools) {
  const OutputFormats formats = detect_formats(source);
  EXPECT_EQ(name_of(formats.reasoning), name_of(reasoning));
  EXPECT_EQ(name_of(formats.tools), name_of(tools));
}

TEST(DetectFormats, ReadsThemOffRealTemplates) {
  const auto none = ReasoningFormat::kNone;
  expect_formats(template_source("qwen3"), ReasoningFormat::kQwen3, ToolFormat::kHermes);
  expect_formats(template_source("qwen2_5"), none, ToolFormat::kHermes);
  expect_formats(template_source("llama3.2"), none, ToolFormat::kLlama3Json);
  for (const char* name : {"chatml", "llama2", "mistral_v0_1", "mistral_v0_3", "mistral_nemo"}) {
    expect_formats(template_source(name), none, ToolFormat::kNone);
  }
}

TEST(DetectFormats, LeavesXmlBetweenTheSameTagsAlone) {
  expect_formats("<tool_call>\\n<function=f>arguments</function>\\n</tool_call>",
                 ReasoningFormat::kNone, ToolFormat::kNone);
  expect_formats("<think></think><tool_call>f<arg_key>arguments</arg_key></tool_call>",
                 ReasoningFormat::kQwen3, ToolFormat::kNone);
  expect_formats("", ReasoningFormat::kNone, ToolFormat::kNone);
}

TEST(FormatNames, GoBothWays) {
  const OutputFormats detected{ReasoningFormat::kQwen3, ToolFormat::kLlama3Json};
  EXPECT_EQ(reasoning_format_of("auto", detected), ReasoningFormat::kQwen3);
  EXPECT_EQ(tool_format_of("auto", detected), ToolFormat::kLlama3Json);
  for (const std::string_view name : {"none", "qwen3"}) {
    EXPECT_EQ(name_of(reasoning_format_of(name, detected)), name);
  }
  for (const std::string_view name : {"none", "hermes", "llama3_json"}) {
    EXPECT_EQ(name_of(tool_format_of(name, detected)), name);
  }
  EXPECT_EQ(reasoning_format_names(), (std::vector<std::string_view>{"auto", "none", "qwen3"}));
  EXPECT_EQ(tool_format_names(),
            (std::vector<std::string_view>{"auto", "none", "hermes", "llama3_json"}));
}

TEST(FormatNames, RefuseUnknownOnesByOptionAndChoices) {
  try {
    tool_format_of("mistral", {});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "--tool-call-parser 'mistral' is not known: expected one of auto, none, hermes, "
                 "llama3_json.");
  }
  EXPECT_THROW(reasoning_format_of("Qwen3", {}), Error);
}

}  // namespace
}  // namespace quire
