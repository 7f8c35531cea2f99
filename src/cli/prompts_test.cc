#include "cli/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::vector<PromptRequest> read(const std::string& text, PromptFormat format) {
  std::istringstream in(text);
  return read_prompts(in, "file", format);
}

PromptRequest line(std::string_view text) {
  return prompt_from_json_line(text, "file line 1");
}

TEST(ReadPrompts, TakesLinesOfTextWithoutTheirEnds) {
  const auto requests = read(" first \nsecond\r\nthird", PromptFormat::kText);
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(std::get<std::string>(requests[0].prompt), " first ");
  EXPECT_EQ(std::get<std::string>(requests[1].prompt), "second");
  EXPECT_EQ(std::get<std::string>(requests[2].prompt), "third");
  EXPECT_EQ(requests[2].where, "file line 3");
}

TEST(ReadPrompts, SkipsBlankLines) {
  const auto texts = read("\na\n \t\r\nb\n\n", PromptFormat::kText);
  ASSERT_EQ(texts.size(), 2U);
  EXPECT_EQ(texts[0].where, "file line 2");
  EXPECT_EQ(texts[1].where, "file line 4");
  EXPECT_EQ(read("{\"prompt\": \"a\"}\n\n \n{\"prompt\": \"b\"}", PromptFormat::kJsonl).size(), 2U);
}

TEST(ReadPrompts, RefusesFilesWithoutPrompts) {
  for (const char* text : {"", "\n", "\n \n"}) {
    EXPECT_THAT([&] { read(text, PromptFormat::kText); },
                ThrowsMessage<Error>("file holds no prompt"));
    EXPECT_THAT([&] { read(text, PromptFormat::kJsonl); },
                ThrowsMessage<Error>("file holds no prompt"));
  }
}

TEST(ReadPrompts, BoundsALine) {
  EXPECT_THAT([] { read(std::string(kMaxLineBytes + 1, 'a'), PromptFormat::kText); },
              ThrowsMessage<Error>(HasSubstr("file line 1: the line is longer than 16 MiB")));
}

TEST(PromptFromJsonLine, ReadsAPriority) {
  EXPECT_EQ(line(R"({"prompt": "a"})").priority, 0);
  EXPECT_EQ(line(R"({"prompt": "a", "priority": -3})").priority, -3);
  EXPECT_EQ(line(R"({"prompt": "a"})").lora, std::nullopt);
  EXPECT_EQ(line(R"({"prompt": "a", "lora": null})").lora, "");
  EXPECT_EQ(line(R"({"prompt": "a", "lora": "caps"})").lora, "caps");
  EXPECT_EQ(line(R"({"prompt": "a", "priority": 9223372036854775807})").priority,
            std::numeric_limits<int64_t>::max());
}

TEST(PromptFromJsonLine, ReadsThreeKinds) {
  EXPECT_EQ(std::get<std::string>(line(R"({"prompt": "hi"})").prompt), "hi");
  EXPECT_THAT(std::get<std::vector<int32_t>>(line(R"({"prompt_token_ids": [1, 2]})").prompt),
              ElementsAre(1, 2));
  const PromptRequest request =
      line(R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "f"}],
               "add_generation_prompt": false, "chat_template_kwargs": {"enable_thinking": false}})");
  const auto& chat = std::get<ChatInput>(request.prompt);
  EXPECT_EQ(chat.messages[0]["content"], "hi");
  EXPECT_EQ(chat.tools.size(), 1U);
  EXPECT_FALSE(chat.add_generation_prompt);
  EXPECT_EQ(chat.template_kwargs["enable_thinking"], false);
}

TEST(PromptFromJsonLine, TakesSamplingFields) {
  const PromptRequest request = line(R"({"prompt": "hi", "max_tokens": 5, "seed": 1})");
  const SamplingParams params = request.sampling.apply({});
  EXPECT_EQ(params.max_tokens, 5);
  EXPECT_EQ(params.seed, 1U);
}

TEST(PromptFromJsonLine, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[1]", "expected a JSON object, got an array"},
      {"{", "not valid JSON"},
      {"{} {}", "not valid JSON"},
      {"{\"prompt\": \"\xff\"}", "not valid JSON"},
      {"{}", "there is no prompt"},
      {R"({"prompt": "a", "prompt": "b"})", "the field \"prompt\" is given twice"},
      {R"({"prompt": "a", "messages": []})", "prompt and messages are both given"},
      {R"({"prompt": 5})", "prompt: expected a string, got 5"},
      {R"({"prompt_token_ids": "1"})", "prompt_token_ids: expected an array of token ids"},
      {R"({"prompt_token_ids": [1, 2.5]})", "prompt_token_ids[1]: expected a token id"},
      {R"({"prompt_token_ids": [-1]})", "prompt_token_ids[0]: expected a token id"},
      {R"({"prompt_token_ids": [99999999999]})", "prompt_token_ids[0]: expected a token id"},
      {R"({"prompt_token_ids": [18446744073709551615]})", "prompt_token_ids[0]"},
      {R"({"messages": "hi"})", "messages: expected an array of at least one message"},
      {R"({"messages": []})", "messages: expected an array of at least one message"},
      {R"({"messages": [{}], "tools": {}})", "tools: expected an array"},
      {R"({"messages": [{}], "add_generation_prompt": 1})", "add_generation_prompt: expected true"},
      {R"({"messages": [{}], "chat_template_kwargs": []})",
       "chat_template_kwargs: expected an obj"},
      {R"({"prompt": "a", "tools": []})", "tools goes with messages, not with prompt"},
      {R"({"prompt": "a", "max_token": 1})", "unknown field max_token; did you mean max_tokens?"},
      {R"({"promt": "a"})", "there is no prompt"},
      {R"({"prompt": "a", "lora": 1})", "lora: expected the name of an adapter, got"},
      {R"({"prompt": "a", "priority": "high"})", "priority: expected an integer of 64 bits, got"},
      {R"({"prompt": "a", "priority": 0.5})", "priority: expected an integer of 64 bits, got 0.5"},
      {R"({"prompt": "a", "priority": 9223372036854775808})", "priority: expected an integer"},
      {R"({"prompt": "a", "temperature": 1e999})", "not valid JSON"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_THAT([&text = text] { line(text); },
                ThrowsMessage<Error>(HasSubstr("file line 1: " + message)))
        << text;
  }
}

TEST(PromptFromJsonLine, BoundsNesting) {
  const std::string deep = std::string(100000, '[');
  EXPECT_THAT([&] { line(R"({"prompt": )" + deep); },
              ThrowsMessage<Error>(HasSubstr("nested deeper than 64 levels")));
}

TEST(ReadPromptFile, SaysWhichFileCannotBeRead) {
  EXPECT_THAT([] { read_prompt_file("/nowhere/prompts.jsonl"); },
              ThrowsMessage<Error>(HasSubstr("/nowhere/prompts.jsonl")));
  EXPECT_THAT([] { read_prompt_file("/tmp"); },
              ThrowsMessage<Error>(HasSubstr("this is a folder")));
}

TEST(ParseTokenIds, ReadsAList) {
  EXPECT_THAT(parse_token_ids("1,2, 3", "--prompt-tokens"), ElementsAre(1, 2, 3));
  for (const char* text : {"", "a", "1,,2", "1.5", "-1", "1]", "[1]"}) {
    EXPECT_THROW(parse_token_ids(text, "--prompt-tokens"), UsageError) << text;
  }
}

}  // namespace
}  // namespace quire::cli
