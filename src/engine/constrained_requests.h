#pragma once
// Requests with constraints on their answers, for the bundled model, and engines that run them: for
// tests of structured output.
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/random_requests.h"
#include "grammar/grammar.h"
#include "quire/error.h"
#include "quire/llm_engine.h"

namespace quire::engine_test {

inline EngineConfig lexicon_config() {
  EngineConfig config;
  config.model = std::string(QUIRE_SOURCE_DIR) + "/models/lexicon";
  config.max_model_len = 256;
  config.threads = 1;
  config.kv_cache_memory_bytes = 16 << 20;
  return config;
}

inline StructuredOutput regex(std::string pattern) {
  return {.kind = StructuredOutput::Kind::kRegex, .text = std::move(pattern)};
}

inline StructuredOutput choice(std::vector<std::string> choices) {
  return {.kind = StructuredOutput::Kind::kChoice, .choices = std::move(choices)};
}

inline StructuredOutput json_schema(std::string schema) {
  return {.kind = StructuredOutput::Kind::kJsonSchema, .text = std::move(schema)};
}

// For all kinds except tags, and for constraints without a marker.
inline bool matches(const StructuredOutput& output, const std::string& text) {
  switch (output.kind) {
    case StructuredOutput::Kind::kRegex:
      return grammar::accepts(grammar::compile_regex(output.text), text);
    case StructuredOutput::Kind::kChoice:
      return grammar::accepts(grammar::compile_choice(output.choices), text);
    case StructuredOutput::Kind::kGrammar:
      return grammar::accepts(grammar::compile_gbnf(output.text), text);
    case StructuredOutput::Kind::kJsonObject:
      return grammar::accepts(grammar::compile_json_schema(R"({"type": "object"})"), text);
    default:
      return grammar::accepts(grammar::compile_json_schema(output.text), text);
  }
}

struct ConstrainedRequest {
  std::string prompt = "define apple";
  SamplingParams params;
};

// The outputs in the order of the requests. Request i is added before step arrival_steps[i], or all
// at once if that is empty.
inline std::vector<RequestOutput> answers_of(LLMEngine& engine,
                                             const std::vector<ConstrainedRequest>& requests,
                                             const std::vector<int>& arrival_steps = {}) {
  std::vector<RequestOutput> outputs(requests.size());
  size_t added = 0;
  for (int step = 0; added < requests.size() || !engine.is_finished(); ++step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if ((arrival_steps.empty() ? 0 : arrival_steps[i]) != step) continue;
      engine.add_request(std::to_string(i), requests[i].prompt, requests[i].params,
                         {.output_kind = OutputKind::kFinalOnly});
      ++added;
    }
    for (RequestOutput& output : engine.step()) {
      EXPECT_EQ(output.error, "");
      outputs[std::stoul(output.request_id)] = std::move(output);
    }
  }
  return outputs;
}

inline const std::vector<StructuredOutput>& some_constraints() {
  using Kind = StructuredOutput::Kind;
  static const std::vector<StructuredOutput> all = {
      regex("[a-z]+( [a-z]+){2,5}\\."),
      regex("\\{(\"[a-z]{1,9}\": (true|false|[0-9]{1,4})(, )?){1,3}\\}!!!"),
      regex("(ab|ba)+c?"),
      choice({"a fruit", "a tree", "fruit", "a fruit that grows on a tree"}),
      {.kind = Kind::kGrammar, .text = "root ::= \"(\" root \")\" | [a-z]+ (\",\" root)?"},
      {.kind = Kind::kJsonObject},
      json_schema(R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                      "age": {"type": "integer", "minimum": 0, "maximum": 150}},
                      "required": ["name", "age"], "additionalProperties": false})"),
      json_schema(R"({"type": "array", "items": {"enum": ["red", "green", 1, null]}, "minItems": 1,
                      "maxItems": 4})"),
      json_schema(R"({"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
                      "value": {"type": "number"}, "children": {"type": "array", "items":
                      {"$ref": "#/$defs/tree"}}}, "required": ["value"],
                      "additionalProperties": false}}})"),
      json_schema(R"({"anyOf": [{"type": "string", "pattern": "^[a-c]+$"}, {"type": "boolean"}]})"),
  };
  return all;
}

// Requests with constraints, and some without.
inline std::vector<ConstrainedRequest> random_constrained_requests(std::mt19937& random,
                                                                   int count) {
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const char* const prompts[] = {"define apple", "pear means", "what is a tree? what is a tree?"};
  std::vector<ConstrainedRequest> requests;
  for (int i = 0; i < count; ++i) {
    ConstrainedRequest request{.prompt = prompts[draw(0, 2)], .params = {}};
    SamplingParams& params = request.params;
    params.max_tokens = draw(24, 60);
    params.temperature = draw(0, 4) * 0.5;
    params.seed = static_cast<uint64_t>(draw(0, 1000));
    params.n = draw(0, 3) == 0 ? 2 : 1;
    params.logprobs = 2;
    params.ignore_eos = draw(0, 3) == 0;
    if (draw(0, 2) == 0) params.top_k = 20;
    if (draw(0, 2) == 0) params.top_p = 0.9;
    if (draw(0, 3) == 0) params.repetition_penalty = 1.2;
    if (draw(0, 4) == 0) params.min_tokens = draw(1, 20);
    if (draw(0, 5) > 0) {
      params.structured_output = some_constraints()[static_cast<size_t>(
          draw(0, static_cast<int>(some_constraints().size()) - 1))];
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// Requests whose answers have much text without a choice between what the model chooses, for an
// engine that writes no white space between the tokens of JSON.
inline std::vector<ConstrainedRequest> random_forced_requests(std::mt19937& random, int count) {
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const std::vector<StructuredOutput> constraints = {
      choice({"cats like to sleep in the sun, and zebras do remember it.", "dogs like to sleep"}),
      regex("[a-z]{1,6} means something that grows on a tree(; [a-z]{1,6} means a fruit){1,2}\\."),
      json_schema(R"({"type": "object", "properties": {"word": {"enum": ["apple", "pear"]},
                      "description": {"type": "string", "maxLength": 12},
                      "relations": {"type": "object", "properties": {"synonyms": {"type": "boolean"}},
                      "required": ["synonyms"], "additionalProperties": false}},
                      "required": ["word", "description", "relations"],
                      "additionalProperties": false})"),
      choice({"one sentence without a choice that is longer than the drafts of two steps together, "
              "whatever the device: it goes on and on and on and on and on and on and on."}),
  };
  std::vector<ConstrainedRequest> requests;
  for (int i = 0; i < count; ++i) {
    ConstrainedRequest request;
    SamplingParams& params = request.params;
    params.max_tokens = draw(60, 100);
    params.temperature = draw(0, 3) * 0.5;
    params.seed = static_cast<uint64_t>(draw(0, 1000));
    params.n = draw(0, 3) == 0 ? 2 : 1;
    if (draw(0, 3) == 0) params.logprobs = 1;
    if (draw(0, 3) == 0) params.presence_penalty = 0.7;
    if (draw(0, 6) > 0) {
      params.structured_output = constraints[static_cast<size_t>(draw(0, 3))];
    } else {
      params.max_tokens = 30;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// The same engine where each token takes a step of its own: no step has room for another.
inline EngineConfig without_drafts(EngineConfig config) {
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 1;
  config.speculative_config.reset();
  return config;
}

inline int64_t num_tokens_of(const std::vector<RequestOutput>& outputs) {
  int64_t count = 0;
  for (const RequestOutput& output : outputs) {
    for (const CompletionOutput& answer : output.outputs) count += std::ssize(answer.token_ids);
  }
  return count;
}

inline void expect_matches(const ConstrainedRequest& request, const RequestOutput& output) {
  const auto& constraint = request.params.structured_output;
  if (!constraint) return;
  for (const CompletionOutput& answer : output.outputs) {
    EXPECT_TRUE(matches(*constraint, answer.text))
        << answer.text << " is not of " << constraint->text << ", max_tokens "
        << *request.params.max_tokens << ", seed " << *request.params.seed;
    if (answer.steered_to_end) {
      EXPECT_EQ(answer.finish_reason, FinishReason::kLength);
    }
  }
}

}  // namespace quire::engine_test
