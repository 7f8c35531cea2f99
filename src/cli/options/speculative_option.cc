#include "cli/options/speculative_option.h"

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/json_text.h"
#include "base/lower_case.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SpeculativeField {
  std::string_view name;
  std::string_view expected;
  // False if the value is of another type.
  std::function<bool(SpeculativeConfig&, const Json&)> set;
};

bool set_string_field(std::string& field, const Json& value) {
  if (value.is_string()) field = value.get<std::string>();
  return value.is_string();
}

// Whole numbers beyond T's range are those at its ends, which no field takes.
template <typename T>
bool set_integer_field(T& field, const Json& value) {
  if (!value.is_number_integer()) return false;
  constexpr auto kMost = std::numeric_limits<int32_t>::max();
  const double number = value.get<double>();
  field = number > kMost ? kMost : number < -kMost ? -kMost : value.get<int32_t>();
  return true;
}

bool set_optional_field(std::optional<int>& field, const Json& value) {
  return value.is_null() || set_integer_field(field.emplace(), value);
}

bool set_number_field(double& field, const Json& value) {
  if (!value.is_number()) return false;
  field = value.get<double>();
  return true;
}

const std::vector<SpeculativeField>& speculative_fields() {
  using Config = SpeculativeConfig;
  static const std::vector<SpeculativeField> kFields = {
      {"method", "a string",
       [](Config& c, const Json& value) { return set_string_field(c.method, value); }},
      {"num_speculative_tokens", "an integer",
       [](Config& c, const Json& value) {
         return set_integer_field(c.num_speculative_tokens, value);
       }},
      {"adaptive", "true or false",
       [](Config& c, const Json& value) {
         if (value.is_boolean()) c.adaptive = value.get<bool>();
         return value.is_boolean();
       }},
      {"synthetic_acceptance_length", "a number",
       [](Config& c, const Json& value) {
         return value.is_null() || set_number_field(c.synthetic_acceptance_length.emplace(), value);
       }},
      {"prompt_lookup_min", "an integer",
       [](Config& c, const Json& value) { return set_optional_field(c.prompt_lookup_min, value); }},
      {"prompt_lookup_max", "an integer",
       [](Config& c, const Json& value) { return set_optional_field(c.prompt_lookup_max, value); }},
      {"suffix_decoding_max_tree_depth", "an integer",
       [](Config& c, const Json& value) {
         return set_integer_field(c.suffix_decoding_max_tree_depth, value);
       }},
      {"suffix_decoding_max_cached_requests", "an integer",
       [](Config& c, const Json& value) {
         return set_integer_field(c.suffix_decoding_max_cached_requests, value);
       }},
      {"suffix_decoding_max_spec_factor", "a number",
       [](Config& c, const Json& value) {
         return set_number_field(c.suffix_decoding_max_spec_factor, value);
       }},
      {"suffix_decoding_min_token_prob", "a number",
       [](Config& c, const Json& value) {
         return set_number_field(c.suffix_decoding_min_token_prob, value);
       }},
      {"model", "a string",
       [](Config& c, const Json& value) { return set_string_field(c.model, value); }},
      {"quantization", "a string",
       [](Config& c, const Json& value) { return set_string_field(c.quantization, value); }},
      {"draft_tensor_parallel_size", "an integer",
       [](Config& c, const Json& value) {
         return set_optional_field(c.draft_tensor_parallel_size, value);
       }},
  };
  return kFields;
}

[[noreturn]] void refuse_speculative_field(const std::string& name) {
  std::string known;
  for (const SpeculativeField& field : speculative_fields()) {
    known += known.empty() ? "" : ", ";
    known += field.name;
  }
  throw UsageError(
      fmt::format("--speculative-config: there is no field \"{}\"; expected {}", name, known));
}

void set_speculative_field(SpeculativeConfig& config, const std::string& name, const Json& value) {
  for (const SpeculativeField& field : speculative_fields()) {
    if (field.name != name) continue;
    if (field.set(config, value)) return;
    throw UsageError(fmt::format("--speculative-config: {} is {}; expected {}", name,
                                 json_kind(value), field.expected));
  }
  refuse_speculative_field(name);
}

// As vLLM does where there is only a model: by its name.
std::string method_for(std::string model) {
  while (model.ends_with('/')) model.pop_back();
  model = lower_case(model.substr(model.rfind('/') + 1));
  if (model.find("eagle3") != std::string::npos) return "eagle3";
  return model.find("eagle") != std::string::npos ? "eagle" : "draft_model";
}

Json parse_speculative_object(const std::string& text) {
  try {
    return parse_json_object(text, "--speculative-config", {.max_depth = 2});
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

SpeculativeConfig parse_speculative_config(const std::string& text) {
  const Json object = parse_speculative_object(text);
  SpeculativeConfig config;
  for (const auto& [name, value] : object.items()) set_speculative_field(config, name, value);
  if (!object.contains("method") && !config.model.empty()) {
    config.method = method_for(config.model);
  } else if (!object.contains("method")) {
    throw UsageError(
        "--speculative-config: there is no method; expected an object like "
        "{\"method\": \"ngram\"}");
  }
  return config;
}

}  // namespace quire::cli
