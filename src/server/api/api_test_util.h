#pragma once
// A model for tests of the API, and the errors of its calls.
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "quire/tokenizer.h"
#include "server/api/api_error.h"
#include "server/api/generation_request.h"
#include "server/api/openapi.h"

namespace quire::server {

inline ModelInfo test_model() {
  ModelInfo model;
  model.id = "lexicon";
  model.aliases = {"gpt-4"};
  model.max_model_len = 2048;
  model.vocab_size = 8192;
  model.defaults.temperature = 0.5;
  model.defaults.top_k = 20;
  model.has_tokenizer = true;
  model.has_chat_template = true;
  model.created = 1700000000;
  return model;
}

// a 0, b 1, ab 2, and 3: a space.
inline Tokenizer small_tokenizer() {
  return Tokenizer::from_json(R"({
    "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}})");
}

inline const ApiDescription& test_api() {
  static const ApiDescription api(test_model());
  return api;
}

inline GenerationRequest parse_chat(std::string_view body) {
  return parse_chat_request(body, test_model(), test_api());
}

inline GenerationRequest parse_completion(std::string_view body) {
  return parse_completion_request(body, test_model(), test_api());
}

// A chat of one message, with these further fields: R"("n": 2)".
inline std::string chat_body(const std::string& fields = "") {
  return R"({"messages": [{"role": "user", "content": "hi"}])" +
         (fields.empty() ? "" : ", " + fields) + "}";
}

inline std::string completion_body(const std::string& fields = "") {
  return R"({"prompt": "hi")" + (fields.empty() ? "" : ", " + fields) + "}";
}

// "STATUS PARAM: MESSAGE" of what `call` throws, "" where it throws nothing.
inline std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const ApiError& error) {
    return std::to_string(error.status) + " " + error.param.value_or("-") + ": " + error.what();
  }
  return "";
}

inline std::string chat_refusal(const std::string& body) {
  return refusal([&] { parse_chat(body); });
}

inline std::string completion_refusal(const std::string& body) {
  return refusal([&] { parse_completion(body); });
}

}  // namespace quire::server
