#include <gtest/gtest.h>

#include <string>

#include "server/api/api_test_util.h"

namespace quire::server {
namespace {

using Ids = std::vector<int32_t>;

TEST(CompletionRequest, DefaultsAreTheModelsAndOpenAis) {
  const GenerationRequest request = parse_completion(completion_body());
  EXPECT_EQ(request.kind, RequestKind::kCompletion);
  EXPECT_EQ(request.model, "lexicon");
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 20);
  EXPECT_EQ(request.num_choices(), 1u);
  EXPECT_TRUE(request.add_special_tokens);
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.logprobs);
}

TEST(CompletionRequest, PromptsOfEachForm) {
  const auto prompts = [](const char* prompt) {
    return parse_completion(R"({"prompt": )" + std::string(prompt) + "}").prompts;
  };
  EXPECT_EQ(std::get<std::string>(prompts(R"("one")").at(0)), "one");
  EXPECT_EQ(std::get<std::string>(prompts(R"(["one", "two"])").at(1)), "two");
  EXPECT_EQ(std::get<Ids>(prompts("[1, 2, 3]").at(0)), Ids({1, 2, 3}));
  EXPECT_EQ(prompts("[1, 2, 3]").size(), 1u);
  EXPECT_EQ(std::get<Ids>(prompts("[[1, 2], [3]]").at(1)), Ids({3}));
}

TEST(CompletionRequest, RefusesOtherPrompts) {
  EXPECT_EQ(completion_refusal("{}"), "400 prompt: prompt is missing.");
  EXPECT_EQ(completion_refusal(R"({"prompt": ""})"),
            "400 prompt: prompt is \"\", but must have at least 1 character.");
  EXPECT_EQ(completion_refusal(R"({"prompt": ["a", 1]})"),
            "400 prompt[1]: prompt[1] is 1, but must be a string.");
  EXPECT_EQ(completion_refusal(R"({"prompt": [1, 8192]})"),
            "400 prompt[1]: prompt[1] is 8192, but must be at most 8191.");
  EXPECT_EQ(completion_refusal(R"({"prompt": [[1], []]})"),
            "400 prompt[1]: prompt[1] is an empty array, but must have at least 1 item.");
  EXPECT_NE(completion_refusal(R"({"prompt": null})"), "");
  EXPECT_NE(completion_refusal(R"({"prompt": {"text": "a"}})"), "");
}

TEST(CompletionRequest, EverySamplingParameterIsTaken) {
  const GenerationRequest request = parse_completion(completion_body(R"(
      "n": 3, "temperature": 0, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "repetition_penalty": 1.2,
      "presence_penalty": -1, "frequency_penalty": 2, "logit_bias": {"5": -100, "8191": 1.5},
      "max_tokens": 7, "min_tokens": 2, "stop": ["a", "b"], "stop_token_ids": [4, 5],
      "include_stop_str_in_output": true, "ignore_eos": true, "skip_special_tokens": false,
      "seed": -1, "logprobs": 4, "prompt_logprobs": 2, "best_of": 3)"));
  const SamplingParams& params = request.sampling;
  EXPECT_EQ(params.n, 3);
  EXPECT_EQ(params.temperature, 0);
  EXPECT_EQ(params.top_p, 0.9);
  EXPECT_EQ(params.top_k, -1);
  EXPECT_EQ(params.min_p, 0.1);
  EXPECT_EQ(params.repetition_penalty, 1.2);
  EXPECT_EQ(params.presence_penalty, -1);
  EXPECT_EQ(params.frequency_penalty, 2);
  EXPECT_EQ(params.logit_bias, (std::map<int32_t, float>{{5, -100.0F}, {8191, 1.5F}}));
  EXPECT_EQ(params.max_tokens, 7);
  EXPECT_EQ(params.min_tokens, 2);
  EXPECT_EQ(params.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(params.stop_token_ids, (Ids{4, 5}));
  EXPECT_TRUE(params.include_stop_str_in_output);
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_FALSE(params.skip_special_tokens);
  EXPECT_EQ(params.seed, ~uint64_t{0});
  EXPECT_EQ(params.logprobs, 4);
  EXPECT_EQ(params.prompt_logprobs, 2);
  EXPECT_TRUE(request.logprobs);
  EXPECT_TRUE(request.prompt_logprobs);
}

TEST(CompletionRequest, WhatIsNotSampling) {
  const GenerationRequest request = parse_completion(completion_body(R"(
      "model": "gpt-4", "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true},
      "echo": true, "logprobs": 0, "return_token_ids": true, "return_tokens_as_token_ids": true,
      "priority": -3, "cache_salt": "s", "user": "u", "timeout": 1.5, "request_id": "r-1",
      "add_special_tokens": false, "store": true, "metadata": {"a": "b"}, "suffix": "",
      "response_format": {"type": "text"}, "guided_json": null)"));
  EXPECT_EQ(request.model, "gpt-4");
  EXPECT_TRUE(request.stream && request.include_usage && request.continuous_usage_stats);
  EXPECT_TRUE(request.echo && request.logprobs && request.return_token_ids &&
              request.return_tokens_as_token_ids);
  EXPECT_FALSE(request.prompt_logprobs);
  EXPECT_EQ(request.sampling.prompt_logprobs, 0);  // for the echo
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.user, "u");
  EXPECT_EQ(request.timeout_s, 1.5);
  EXPECT_EQ(request.request_id, "r-1");
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_TRUE(request.warnings.empty());
}

TEST(CompletionRequest, NullStandsForTheDefault) {
  const GenerationRequest request = parse_completion(completion_body(R"(
      "model": null, "n": null, "temperature": null, "stop": null, "seed": null, "stream": null,
      "max_tokens": null, "logprobs": null, "logit_bias": null, "stream_options": null,
      "timeout": null, "response_format": null, "best_of": null, "echo": null)"));
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_FALSE(request.logprobs);
}

TEST(CompletionRequest, RefusesWhatIsOutOfRange) {
  const char* wrong[] = {
      R"("n": 0)",
      R"("n": -1)",
      R"("n": 129)",
      R"("n": 1.5)",
      R"("n": "2")",
      R"("n": 99999999999999999999)",
      R"("temperature": -1)",
      R"("top_p": 0)",
      R"("top_p": 1.1)",
      R"("top_k": -2)",
      R"("min_p": 2)",
      R"("max_tokens": 0)",
      R"("max_tokens": -5)",
      R"("max_tokens": 2048)",
      R"("max_tokens": 1e30)",
      R"("logprobs": 21)",
      R"("logprobs": -1)",
      R"("logprobs": true)",
      R"("stop": [""])",
      R"("stop": 5)",
      R"("stop_token_ids": [8192])",
      R"("seed": 1e19)",
      R"("timeout": 0)",
      R"("timeout": -1)",
      R"("stream": 1)",
      R"("stream": "true")",
      R"("logit_bias": {"5": 101})",
      R"("logit_bias": [])",
      R"("priority": "x")",
      R"("cache_salt": "")",
      R"("request_id": "a b")",
  };
  for (const char* field : wrong) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    const std::string message = completion_refusal(completion_body(field));
    EXPECT_TRUE(message.starts_with("400 " + name)) << field << " -> " << message;
  }
  EXPECT_EQ(completion_refusal(completion_body(R"("stop": ")" + std::string(1 << 20, 'x') + "\"")),
            "400 stop: stop is a string of 1048576 characters, but must have at most 1024 "
            "characters.");
}

TEST(CompletionRequest, RefusesBiasesOfWhatIsNoToken) {
  for (const char* key : {"", "a", "-1", "8192", "08", "1.0", "99999999999"}) {
    const std::string message =
        completion_refusal(completion_body(R"("logit_bias": {")" + std::string(key) + "\": 1}"));
    EXPECT_TRUE(message.starts_with("400 logit_bias")) << key << " -> " << message;
  }
}

TEST(CompletionRequest, RefusesContradictions) {
  EXPECT_EQ(completion_refusal(completion_body(R"("best_of": 2)")),
            "400 best_of: best_of is 2, but must equal n, which is 1: outputs are not ranked.");
  EXPECT_EQ(completion_refusal(completion_body(R"("min_tokens": 17)")),
            "400 min_tokens: min_tokens is 17, but must be at most max_tokens, which is 16.");
  EXPECT_EQ(completion_refusal(completion_body(R"("stream_options": {})")),
            "400 stream_options: stream_options goes only with stream: true.");
  EXPECT_EQ(completion_refusal(completion_body(R"("stream": true, "prompt_logprobs": 1)")),
            "400 prompt_logprobs: prompt_logprobs is not given with stream: true.");
}

TEST(CompletionRequest, RefusesWhatIsNotSupported) {
  const char* fields[] = {
      R"("suffix": "end")",
      R"("structural_tag": {})",
      R"("choice": ["a"])",
      R"("structured_output": {"regex": "a"})",
      R"("guided_decoding": {"regex": "a"})",
      R"("guided_whitespace_pattern": " ")",
      R"("use_beam_search": true)",
      R"("allowed_token_ids": [1])",
      R"("bad_words": ["x"])",
      R"("truncate_prompt_tokens": 5)",
      R"("logits_processors": ["x"])",
  };
  for (const char* field : fields) {
    const std::string name = std::string(field).substr(1, std::string(field).find('"', 1) - 1);
    const std::string message = completion_refusal(completion_body(field));
    EXPECT_TRUE(message.starts_with("400 " + name)) << message;
    EXPECT_NE(message.find("support"), std::string::npos) << message;
  }
}

TEST(CompletionRequest, Constraints) {
  using Kind = StructuredOutput::Kind;
  EXPECT_EQ(parse_completion(completion_body()).sampling.structured_output, std::nullopt);
  const GenerationRequest request =
      parse_completion(completion_body(R"("structured_outputs": {"regex": "[ab]+"})"));
  EXPECT_EQ(request.sampling.structured_output,
            (StructuredOutput{.kind = Kind::kRegex, .text = "[ab]+"}));
  EXPECT_EQ(request.constraint_field, "structured_outputs.regex");
  EXPECT_EQ(parse_completion(completion_body(R"("guided_choice": ["a", "b"])"))
                .sampling.structured_output->choices.size(),
            2u);
  EXPECT_EQ(completion_refusal(completion_body(
                R"("guided_regex": "a", "response_format": {"type": "json_object"})")),
            "400 guided_regex: response_format and guided_regex are both given, but an answer "
            "follows one of them.");
}

TEST(CompletionRequest, RefusesConstraintsThatAreNone) {
  for (const auto& [fields, message] : std::vector<std::pair<std::string, std::string>>{
           {R"("response_format": {"type": "xml"})",
            "400 response_format.type: response_format.type is \"xml\", but must be \"text\", "
            "\"json_object\", \"json_schema\" or \"structural_tag\"."},
           {R"("response_format": {"type": "json_schema"})",
            "400 response_format.json_schema: response_format.json_schema is missing."},
           {R"("response_format": {"type": "json_schema", "json_schema": {"name": "x"}})",
            "400 response_format.json_schema.schema: response_format.json_schema.schema is "
            "missing."},
           {R"("response_format": {"type": "structural_tag", "triggers": ["<"]})",
            "400 response_format.structures: response_format needs structures and triggers where "
            "its type is structural_tag."},
           {R"("structured_outputs": {"json_object": false})",
            "400 structured_outputs.json_object: structured_outputs.json_object is false, but must "
            "be true or null."},
           {R"("structured_outputs": {"jsn": {}})",
            "400 structured_outputs.jsn: structured_outputs.jsn is not known."},
           {R"("structured_outputs": {"regex": "a", "whitespace_pattern": " "})",
            "400 structured_outputs.whitespace_pattern: structured_outputs.whitespace_pattern is "
            "not supported; leave it out."}}) {
    EXPECT_EQ(completion_refusal(completion_body(fields)), message);
  }
}

TEST(CompletionRequest, AnotherModelIsNotFound) {
  EXPECT_EQ(completion_refusal(completion_body(R"("model": "gpt-5")")),
            "404 model: The model 'gpt-5' does not exist.");
  EXPECT_TRUE(completion_refusal(completion_body(R"("model": 5)")).starts_with("400 model"));
}

TEST(CompletionRequest, WarnsOfNearMisses) {
  const GenerationRequest request =
      parse_completion(completion_body(R"("temprature": 0, "something_else_entirely": 1)"));
  ASSERT_EQ(request.warnings.size(), 1u);
  EXPECT_EQ(request.warnings[0],
            "the unknown field temprature is ignored; did you mean temperature?");
}

}  // namespace
}  // namespace quire::server
