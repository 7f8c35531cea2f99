// Whatever is asked for and however the engine cuts it: what a stream adds up to is the whole
// answer, each event is what the schema says, and the event of plain text is the one that the
// general path writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "server/answer/format_test_util.h"
#include "server/api/api_schemas.h"

namespace quire::server {
namespace {

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(engine_); }
  bool coin() { return below(2) == 0; }

 private:
  std::mt19937 engine_;
};

std::string random_text(Random& random) {
  constexpr std::array<std::string_view, 16> kPieces = {
      "a",
      " the",
      "\"",
      "\\",
      "\n",
      "\t",
      "é",
      "\xF0\x9F\x98\x80",
      "\x01",
      "\x7F",
      "<think>",
      "</think>",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"q\": \"x\"}}\n</tool_call>",
      "",
      "{\"a\": [1]}",
      "<tool_call>"};
  std::string text;
  for (size_t i = random.below(4); i > 0; --i) text += kPieces[random.below(kPieces.size())];
  return text;
}

PositionLogprobs random_logprobs(Random& random) {
  PositionLogprobs position;
  for (size_t i = 0; i < 1 + random.below(3); ++i) {
    const auto id = static_cast<int32_t>(random.below(50));
    position.push_back({id, -static_cast<float>(random.below(9)), static_cast<int>(i) + 1,
                        "t" + std::to_string(id)});
  }
  return position;
}

struct Script {
  GenerationRequest request;
  std::vector<std::pair<size_t, RequestOutput>> outputs;  // by prompt
};

// The outputs of one prompt: n choices that go on for a while and end at different times.
void add_outputs(Random& random, const GenerationRequest& request, size_t prompt, Script& script) {
  const auto n = static_cast<size_t>(request.sampling.n);
  std::vector<bool> ended(n);
  bool first = true;
  while (std::find(ended.begin(), ended.end(), false) != ended.end()) {
    RequestOutput output;
    if (first) {
      output.prompt_token_ids = {3, 1, 4};
      if (request.sampling.prompt_logprobs) {
        output.prompt_logprobs = {{}, random_logprobs(random), random_logprobs(random)};
      }
    }
    first = false;
    output.num_cached_tokens = 2;
    for (size_t i = 0; i < n; ++i) {
      CompletionOutput& choice = output.outputs.emplace_back();
      choice.index = static_cast<int>(i);
      if (ended[i]) {
        choice.finish_reason = FinishReason::kStop;
        continue;
      }
      choice.text = random_text(random);
      for (size_t t = random.below(3); t > 0; --t) {
        choice.token_ids.push_back(static_cast<int32_t>(random.below(100)));
        if (request.sampling.logprobs) choice.logprobs.push_back(random_logprobs(random));
      }
      ended[i] = random.below(4) == 0;
      if (ended[i]) {
        choice.finish_reason = static_cast<FinishReason>(random.below(3));
        if (random.coin()) choice.stop_reason = random.coin() ? "17" : "STOP";
      }
    }
    script.outputs.emplace_back(prompt, std::move(output));
  }
}

Script random_script(Random& random, RequestKind kind) {
  Script script;
  GenerationRequest& request = script.request;
  request.kind = kind;
  request.sampling.n = 1 + static_cast<int>(random.below(3));
  request.sampling.stop = {"STOP"};
  request.logprobs = random.coin();
  if (request.logprobs) request.sampling.logprobs = 2;
  request.return_token_ids = random.coin();
  request.return_tokens_as_token_ids = random.coin();
  request.include_reasoning = random.below(4) != 0;
  request.echo = random.coin();
  request.include_usage = true;
  request.continuous_usage_stats = random.below(4) == 0;
  request.chat.messages = Json::parse(R"([{"role": "assistant", "content": "so \"far\""}])");
  if (kind == RequestKind::kCompletion) {
    for (size_t i = 0; i < 1 + random.below(3); ++i) request.prompts.emplace_back("a\nb");
    if (request.echo && request.logprobs) request.sampling.prompt_logprobs = 2;
  }
  for (size_t i = 0; i < request.num_prompts(); ++i) add_outputs(random, request, i, script);
  return script;
}

std::string run(Script script, bool stream, const OutputParserConfig& parser) {
  script.request.stream = stream;
  const auto formatter = make_formatter(script.request, test_context(parser));
  std::string text = formatter->begin();
  for (const auto& [prompt, output] : script.outputs) text += formatter->push(prompt, output);
  EXPECT_TRUE(formatter->done());
  return text + formatter->end();
}

OutputParserConfig random_parser(Random& random) {
  OutputParserConfig config;
  if (random.coin()) config.reasoning = ReasoningFormat::kQwen3;
  if (random.coin()) config.tools = ToolFormat::kHermes;
  return config;
}

void expect_valid(const JsonSchemas& schemas, const char* name, const Json& value) {
  const auto violation = schemas.check(name, value);
  EXPECT_FALSE(violation) << violation->message << "\n" << value.dump();
}

class FormatProperty : public testing::TestWithParam<RequestKind> {};

TEST_P(FormatProperty, TheStreamAddsUpToTheWholeAnswer) {
  const bool chat = GetParam() == RequestKind::kChat;
  const JsonSchemas schemas(response_schemas());
  for (uint32_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const Script script = random_script(random, GetParam());
    const OutputParserConfig parser = random_parser(random);
    const std::string stream = run(script, true, parser);
    const Json whole = Json::parse(run(script, false, parser));
    EXPECT_EQ(without_empty(reassemble(stream)).dump(), without_empty(whole).dump())
        << "seed " << seed << "\n"
        << stream;
    expect_valid(schemas, chat ? "ChatCompletion" : "Completion", whole);
    for (const std::string& data : events_of(stream)) {
      if (data == "[DONE]") continue;
      expect_valid(schemas, chat ? "ChatCompletionChunk" : "Completion", Json::parse(data));
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FormatProperty,
                         testing::Values(RequestKind::kChat, RequestKind::kCompletion),
                         [](const auto& info) {
                           return info.param == RequestKind::kChat ? "Chat" : "Completion";
                         });

TEST(FormatProperty, PlainEventsAreThoseOfTheGeneralPath) {
  Random random(1);
  for (const RequestKind kind : {RequestKind::kChat, RequestKind::kCompletion}) {
    for (int i = 0; i < 200; ++i) {
      GenerationRequest request;
      request.kind = kind;
      request.stream = true;
      request.sampling.n = 20;
      request.include_usage = random.coin();
      request.prompts.emplace_back("a");
      const auto formatter = make_formatter(request, test_context());
      RequestOutput output = output_of(random_text(random));
      output.outputs[0].index = static_cast<int>(random.below(20));
      const std::string event = formatter->push(0, output);
      if (output.outputs[0].text.empty()) {
        EXPECT_EQ(event, "");
        continue;
      }
      // Parsed and written by the library, it is the same bytes.
      EXPECT_EQ("data: " + Json::parse(events_of(event).at(0)).dump() + "\n\n", event);
      EXPECT_NE(event.find(Json(output.outputs[0].text).dump()), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace quire::server
