#include <gtest/gtest.h>

#include <string>

#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

constexpr const char* kTools = R"("tools": [
    {"type": "function", "function": {"name": "weather", "parameters": {"z": 1, "a": 2}}},
    {"type": "function", "function": {"name": "time"}}])";

Json messages_of(const std::string& messages) {
  return parse_chat(R"({"messages": )" + messages + "}").chat.messages;
}

TEST(ChatRequest, Defaults) {
  const GenerationRequest request = parse_chat(chat_body());
  EXPECT_EQ(request.kind, RequestKind::kChat);
  EXPECT_EQ(request.sampling.max_tokens, std::nullopt);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.logprobs, std::nullopt);
  EXPECT_TRUE(request.chat.add_generation_prompt);
  EXPECT_FALSE(request.continue_final_message);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_TRUE(request.include_reasoning);
  EXPECT_TRUE(request.parallel_tool_calls);
  EXPECT_EQ(request.tool_choice, ToolChoice::kNone);
  EXPECT_TRUE(request.chat.tools.is_null());
  EXPECT_EQ(request.num_choices(), 1u);
}

TEST(ChatRequest, LengthByEitherName) {
  EXPECT_EQ(parse_chat(chat_body(R"("max_tokens": 5)")).sampling.max_tokens, 5);
  EXPECT_EQ(parse_chat(chat_body(R"("max_completion_tokens": 6)")).sampling.max_tokens, 6);
  EXPECT_EQ(
      parse_chat(chat_body(R"("max_completion_tokens": 6, "max_tokens": 5)")).sampling.max_tokens,
      6);
}

TEST(ChatRequest, MessagesComeAsTemplatesExpectThem) {
  EXPECT_EQ(messages_of(R"([{"role": "developer", "content": "x"}])").dump(),
            R"([{"role":"system","content":"x"}])");
  EXPECT_EQ(messages_of(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                                         {"type": "text", "text": "b"}]}])")
                .dump(),
            R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(messages_of(R"([{"role": "assistant", "content": null}, {"role": "user"}])").dump(),
            R"([{"role":"assistant","content":""},{"role":"user","content":""}])");
}

TEST(ChatRequest, ArgumentsOfCallsAreOpened) {
  const auto arguments = [](const std::string& text) {
    return messages_of(R"([{"role": "assistant", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": )" +
                       text + "}}]}]")[0]["tool_calls"][0]["function"]["arguments"]
        .dump();
  };
  EXPECT_EQ(arguments(R"("{\"b\": 1, \"a\": [2]}")"), R"({"b":1,"a":[2]})");
  EXPECT_EQ(arguments(R"({"b": 1})"), R"({"b":1})");
  EXPECT_EQ(arguments(R"("{\"b\": ")"), R"("{\"b\": ")");  // as the model wrote it
  EXPECT_EQ(arguments("null"), "{}");
}

TEST(ChatRequest, RefusesOtherMessages) {
  EXPECT_EQ(chat_refusal("{}"), "400 messages: messages is missing.");
  EXPECT_EQ(chat_refusal(R"({"messages": []})"),
            "400 messages: messages is an empty array, but must have at least 1 item.");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"content": "x"}]})"),
            "400 messages[0].role: messages[0].role is missing.");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": 5}]})"),
            "400 messages[0].content: messages[0].content is 5, but must be a string, null or an "
            "array.");
  EXPECT_EQ(chat_refusal(R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"),
            "400 messages[0].content[0].text: messages[0].content[0].text is missing.");
  for (const char* part :
       {R"({"type": "image_url", "image_url": {"url": "http://x/y.png"}})",
        R"({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}})"}) {
    EXPECT_EQ(
        chat_refusal(R"({"messages": [{"role": "user", "content": [)" + std::string(part) + "]}]}"),
        "400 messages[0].content[0].type: Only text is supported as content: parts of type "
        "text (not images, audio or files).");
  }
}

TEST(ChatRequest, Logprobs) {
  EXPECT_EQ(parse_chat(chat_body(R"("logprobs": true)")).sampling.logprobs, 0);
  const GenerationRequest request = parse_chat(chat_body(R"("logprobs": true, "top_logprobs": 5)"));
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.sampling.logprobs, 5);
  EXPECT_FALSE(parse_chat(chat_body(R"("logprobs": false, "top_logprobs": 0)")).logprobs);
  EXPECT_EQ(chat_refusal(chat_body(R"("top_logprobs": 5)")),
            "400 top_logprobs: top_logprobs goes only with logprobs: true.");
  EXPECT_NE(chat_refusal(chat_body(R"("logprobs": true, "top_logprobs": 21)")), "");
  EXPECT_NE(chat_refusal(chat_body(R"("logprobs": true, "top_logprobs": -1)")), "");
  EXPECT_NE(chat_refusal(chat_body(R"("logprobs": 3)")), "");
}

TEST(ChatRequest, Tools) {
  const GenerationRequest request = parse_chat(chat_body(kTools));
  EXPECT_EQ(request.tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(request.chat.tools[0]["function"]["parameters"].dump(), R"({"z":1,"a":2})");
  EXPECT_EQ(parse_chat(chat_body(R"("tools": [])")).tool_choice, ToolChoice::kNone);
  EXPECT_FALSE(parse_chat(chat_body(R"("parallel_tool_calls": false)")).parallel_tool_calls);
  EXPECT_EQ(chat_refusal(chat_body(R"("tools": [{"type": "custom", "custom": {"name": "x"}}])")),
            "400 tools[0].type: Only tools of type function are supported.");
  EXPECT_EQ(chat_refusal(chat_body(R"("tools": [{"type": "function", "function": {}}])")),
            "400 tools[0].function.name: tools[0].function.name is missing.");
}

TEST(ChatRequest, ToolChoice) {
  const auto with_choice = [](const std::string& choice) {
    return chat_body(kTools + std::string(R"(, "tool_choice": )") + choice);
  };
  EXPECT_EQ(parse_chat(with_choice(R"("auto")")).tool_choice, ToolChoice::kAuto);
  EXPECT_EQ(parse_chat(with_choice(R"("required")")).tool_choice, ToolChoice::kRequired);
  const GenerationRequest none = parse_chat(with_choice(R"("none")"));
  EXPECT_EQ(none.tool_choice, ToolChoice::kNone);
  EXPECT_TRUE(none.chat.tools.is_null());
  const GenerationRequest named =
      parse_chat(with_choice(R"({"type": "function", "function": {"name": "time"}})"));
  EXPECT_EQ(named.tool_choice, ToolChoice::kNamed);
  EXPECT_EQ(named.tool_name, "time");
  EXPECT_EQ(chat_refusal(with_choice(R"({"type": "function", "function": {"name": "date"}})")),
            "400 tool_choice: tool_choice names the function \"date\", which is not among tools.");
  EXPECT_EQ(chat_refusal(chat_body(R"("tool_choice": "required")")),
            "400 tool_choice: tool_choice asks for a call, but there are no tools.");
  EXPECT_EQ(parse_chat(chat_body(R"("tool_choice": "auto")")).tool_choice, ToolChoice::kNone);
  EXPECT_NE(chat_refusal(with_choice(R"("any")")), "");
}

TEST(ChatRequest, TemplateSettings) {
  const GenerationRequest request = parse_chat(chat_body(
      R"("chat_template_kwargs": {"enable_thinking": false}, "add_generation_prompt": false)"));
  EXPECT_EQ(request.chat.template_kwargs.dump(), R"({"enable_thinking":false})");
  EXPECT_FALSE(request.chat.add_generation_prompt);
  for (const char* name : {"messages", "tools", "chat_template", "add_generation_prompt"}) {
    const std::string message =
        chat_refusal(chat_body(R"("chat_template_kwargs": {")" + std::string(name) + "\": []}"));
    EXPECT_TRUE(message.starts_with("400 chat_template_kwargs")) << message;
  }
  EXPECT_NE(chat_refusal(chat_body(R"("chat_template": "{{ messages }}")")), "");
}

TEST(ChatRequest, ContinueFinalMessage) {
  const GenerationRequest request = parse_chat(chat_body(R"("continue_final_message": true)"));
  EXPECT_TRUE(request.continue_final_message);
  EXPECT_FALSE(request.chat.add_generation_prompt);
  EXPECT_EQ(
      chat_refusal(chat_body(R"("continue_final_message": true, "add_generation_prompt": true)")),
      "400 continue_final_message: add_generation_prompt and continue_final_message cannot both "
      "be true.");
}

TEST(ChatRequest, Reasoning) {
  EXPECT_EQ(parse_chat(chat_body(R"("reasoning_effort": "low")")).chat.template_kwargs.dump(),
            R"({"reasoning_effort":"low"})");
  EXPECT_EQ(parse_chat(chat_body(R"("reasoning_effort": "none")")).chat.template_kwargs.dump(),
            R"({"reasoning_effort":"none","enable_thinking":false})");
  EXPECT_EQ(parse_chat(chat_body(R"("reasoning_effort": "none",
                                    "chat_template_kwargs": {"enable_thinking": true})"))
                .chat.template_kwargs["enable_thinking"],
            true);
  EXPECT_FALSE(parse_chat(chat_body(R"("include_reasoning": false)")).include_reasoning);
}

TEST(ChatRequest, RefusesWhatIsNotSupported) {
  for (const char* field : {R"("audio": {})", R"("functions": [])", R"("function_call": "auto")",
                            R"("modalities": ["text", "audio"])", R"("prediction": {})",
                            R"("web_search_options": {})", R"("documents": [])"}) {
    const std::string message = chat_refusal(chat_body(field));
    EXPECT_TRUE(message.starts_with("400 ")) << message;
    EXPECT_NE(message.find("support"), std::string::npos) << message;
  }
  EXPECT_EQ(chat_refusal(chat_body(R"("modalities": ["text"], "store": true)")), "");
}

TEST(ChatRequest, NeedsAChatTemplate) {
  ModelInfo base = test_model();
  base.has_chat_template = false;
  const std::string message =
      refusal([&] { parse_chat_request(chat_body(), base, ApiDescription(base)); });
  EXPECT_TRUE(message.starts_with("400 messages: The model has no chat template")) << message;
}

}  // namespace
}  // namespace quire::server
