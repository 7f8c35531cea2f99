#include "server/api/request_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "parsers/constraint_fields.h"

namespace quire::server {
namespace {

std::vector<std::string> stop_strings(const Json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  return value.get<std::vector<std::string>>();
}

void take_sampling(const Json& body, SamplingParams& params) {
  take_field(body, "n", params.n);
  take_field(body, "temperature", params.temperature);
  take_field(body, "top_k", params.top_k);
  take_field(body, "top_p", params.top_p);
  take_field(body, "min_p", params.min_p);
  take_field(body, "repetition_penalty", params.repetition_penalty);
  take_field(body, "presence_penalty", params.presence_penalty);
  take_field(body, "frequency_penalty", params.frequency_penalty);
  take_field(body, "min_tokens", params.min_tokens);
  take_field(body, "stop_token_ids", params.stop_token_ids);
  take_field(body, "include_stop_str_in_output", params.include_stop_str_in_output);
  take_field(body, "ignore_eos", params.ignore_eos);
  take_field(body, "skip_special_tokens", params.skip_special_tokens);
  if (const Json* stop = given(body, "stop")) params.stop = stop_strings(*stop);
  if (const Json* seed = given(body, "seed")) {
    params.seed = static_cast<uint64_t>(seed->get<int64_t>());
  }
  if (const Json* count = given(body, "prompt_logprobs"))
    params.prompt_logprobs = count->get<int>();
  if (const Json* biases = given(body, "logit_bias")) {
    params.logit_bias.clear();
    for (const auto& [id, bias] : biases->items()) {
      params.logit_bias[std::stoi(id)] = bias.get<float>();
    }
  }
}

void take_constraint(const Json& body, const RawJson& raw, GenerationRequest& request) {
  try {
    std::optional<ConstraintField> found = constraint_of(body, raw);
    if (!found) return;
    request.sampling.structured_output = std::move(found->constraint);
    request.constraint_field = std::move(found->field);
  } catch (const ConstraintFieldError& error) {
    throw invalid_request(error.what(), error.field(), "invalid_value");
  }
}

}  // namespace

const Json* given(const Json& body, std::string_view name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

void check_model(const Json& body, const ModelInfo& model) {
  const auto found = body.find("model");
  if (found == body.end() || !found->is_string()) return;
  const auto& name = found->get_ref<const std::string&>();
  if (!find_model(model, name)) throw model_not_found(name);
}

void take_common_fields(const Json& body, const RawJson& raw, const ModelInfo& model,
                        GenerationRequest& request) {
  std::string name = model.id;
  take_field(body, "model", name);
  const std::optional<NamedModel> named = find_model(model, name);
  if (!named) throw model_not_found(name);  // an adapter that was unloaded just now
  request.adapter = named->adapter;
  request.model = request.adapter.empty() ? name : named->id;
  request.sampling = model.defaults;
  request.sampling.max_tokens = std::nullopt;
  take_sampling(body, request.sampling);
  take_constraint(body, raw, request);
  request.prompt_logprobs = given(body, "prompt_logprobs") != nullptr;

  take_field(body, "add_special_tokens", request.add_special_tokens);
  take_field(body, "echo", request.echo);
  take_field(body, "return_token_ids", request.return_token_ids);
  take_field(body, "return_tokens_as_token_ids", request.return_tokens_as_token_ids);
  take_field(body, "return_draft_usage", request.return_draft_usage);
  take_field(body, "stream", request.stream);
  if (const Json* options = given(body, "stream_options")) {
    take_field(*options, "include_usage", request.include_usage);
    take_field(*options, "continuous_usage_stats", request.continuous_usage_stats);
    take_field(*options, "resumable", request.resumable);
  }
  take_field(body, "priority", request.priority);
  take_field(body, "cache_salt", request.cache_salt);
  take_field(body, "user", request.user);
  take_field(body, "request_id", request.request_id);
  if (const Json* seconds = given(body, "timeout")) request.timeout_s = seconds->get<double>();

  if (const Json* best_of = given(body, "best_of")) {
    if (best_of->get<int64_t>() != request.sampling.n) {
      throw invalid_request(
          fmt::format("best_of is {}, but must equal n, which is {}: outputs are not ranked.",
                      best_of->get<int64_t>(), request.sampling.n),
          "best_of", "invalid_value");
    }
  }
}

void check_sampling(const SamplingParams& params) {
  if (params.max_tokens && params.min_tokens > *params.max_tokens) {
    throw invalid_request(
        fmt::format("min_tokens is {}, but must be at most max_tokens, which is {}.",
                    params.min_tokens, *params.max_tokens),
        "min_tokens", "invalid_value");
  }
  try {
    params.validate();
  } catch (const Error& error) {
    throw invalid_request(error.what(), {}, "invalid_value");
  }
}

ApiError prompt_too_long(int64_t num_tokens, int64_t max_model_len, const std::string& param) {
  return invalid_request(
      fmt::format("The prompt has {} tokens, and the model takes at most {} of prompt and answer "
                  "together; shorten it.",
                  num_tokens, max_model_len),
      param, "context_length_exceeded");
}

}  // namespace quire::server
