#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "server/api/api_error.h"
#include "server/api/generation_request.h"
#include "server/api/openapi.h"
#include "server/api/request_fields.h"

namespace quire::server {
namespace {

constexpr const char* kCompletionSchemaName = "CompletionRequest";

std::variant<std::string, std::vector<int32_t>> prompt_from(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.get<std::vector<int32_t>>();
}

void take_prompts(const Json& prompt, GenerationRequest& request) {
  // A list of numbers is one prompt, and any other list a list of prompts.
  if (prompt.is_string() || prompt.front().is_number()) {
    request.prompts.push_back(prompt_from(prompt));
    return;
  }
  for (const Json& one : prompt) request.prompts.push_back(prompt_from(one));
}

// Distinguishes a prompt of too many ids from a list of too many prompts; the schema could only
// report the latter.
void check_num_ids(const Json& body, const ModelInfo& model) {
  const Json* prompt = given(body, "prompt");
  const auto too_long = [&model](const Json& ids) {
    return ids.is_array() && !ids.empty() && ids.front().is_number() &&
           static_cast<int64_t>(ids.size()) >= model.max_model_len;
  };
  if (prompt == nullptr || !prompt->is_array()) return;
  if (too_long(*prompt)) {
    throw prompt_too_long(static_cast<int64_t>(prompt->size()), model.max_model_len, "prompt");
  }
  for (size_t i = 0; i < prompt->size(); ++i) {
    const Json& ids = (*prompt)[i];
    if (!too_long(ids)) continue;
    throw prompt_too_long(static_cast<int64_t>(ids.size()), model.max_model_len,
                          fmt::format("prompt[{}]", i));
  }
}

void take_completion_logprobs(const Json& body, GenerationRequest& request) {
  const Json* count = given(body, "logprobs");
  if (count == nullptr) return;
  SamplingParams& sampling = request.sampling;
  request.logprobs = true;
  sampling.logprobs = count->get<int>();
  // What is echoed has logprobs, too.
  if (request.echo) {
    sampling.prompt_logprobs = std::max(sampling.prompt_logprobs.value_or(0), *sampling.logprobs);
  }
}

}  // namespace

GenerationRequest parse_completion_request(std::string_view text, const ModelInfo& model,
                                           const ApiDescription& api) {
  Json body = parse_object_body(text);
  const JsonClearer clearer(body);
  check_model(body, model);
  check_num_ids(body, model);
  api.check(kCompletionSchemaName, body);
  GenerationRequest request;
  request.kind = RequestKind::kCompletion;
  request.warnings = api.near_misses(kCompletionSchemaName, body);
  take_common_fields(body, RawJson(text), model, request);
  take_completion_logprobs(body, request);
  constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's
  request.sampling.max_tokens = kDefaultMaxTokens;
  if (const Json* limit = given(body, "max_tokens")) {
    request.sampling.max_tokens = limit->get<int64_t>();
    request.gave_max_tokens = true;
  }
  check_sampling(request.sampling);
  take_prompts(body.at("prompt"), request);
  return request;
}

}  // namespace quire::server
