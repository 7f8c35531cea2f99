#include "loader/quantization_reader.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::loader_internal {
namespace {

// Throws unless the field has this value, which it may also lack where `may_lack`.
void expect_string(const JsonFields& fields, const char* field, std::string_view expected,
                   bool may_lack = false) {
  const std::optional<std::string> value = fields.string(field);
  if (!value && may_lack) return;
  if (!value) fields.fail(field, fmt::format("is missing; quire reads \"{}\"", expected));
  if (*value != expected) fields.fail_value(field, fmt::format("\"{}\"", expected));
}

void expect_boolean(const JsonFields& fields, const char* field, bool expected) {
  if (fields.boolean(field).value_or(expected) != expected) {
    fields.fail_value(field, expected ? "true" : "false");
  }
}

void expect_missing(const JsonFields& fields, const char* field) {
  if (fields.has(field)) fields.fail_value(field, "null");
}

void expect_float8(const JsonFields& fields) {
  if (fields.required_integer("num_bits", 1, 64) != 8) fields.fail_value("num_bits", "8");
  expect_string(fields, "type", "float");
  expect_boolean(fields, "symmetric", true);
  expect_missing(fields, "group_size");
  expect_missing(fields, "block_structure");
  expect_missing(fields, "actorder");
}

void check_weights(const JsonFields& weights) {
  expect_float8(weights);
  expect_string(weights, "strategy", "channel");
  expect_boolean(weights, "dynamic", false);
}

void check_activations(const JsonFields& activations) {
  expect_float8(activations);
  expect_string(activations, "strategy", "token");
  if (!activations.boolean("dynamic").value_or(false)) {
    activations.fail("dynamic",
                     "is missing or false; quire reads activations that are quantised as "
                     "a step runs: true");
  }
}

void check_group(const JsonFields& group) {
  expect_string(group, "format", "float-quantized", /*may_lack=*/true);
  const auto targets = group.strings("targets");
  if (!targets) group.fail("targets", "is missing; expected [\"Linear\"]");
  if (*targets != std::vector<std::string>{"Linear"}) group.fail_value("targets", "[\"Linear\"]");
  const auto weights = group.object("weights");
  if (!weights) group.fail("weights", "is missing; expected the scheme of the layers' weights");
  check_weights(*weights);
  if (const auto activations = group.object("input_activations")) check_activations(*activations);
  expect_missing(group, "output_activations");
}

void check_groups(const JsonFields& quantization) {
  const auto groups = quantization.object("config_groups");
  if (!groups) quantization.fail("config_groups", "is missing; expected one group of layers");
  const std::vector<std::string> names = groups->names();
  if (names.size() != 1) {
    quantization.fail("config_groups", fmt::format("has {} groups; expected one", names.size()));
  }
  const char* name = names.front().c_str();
  const auto group = groups->object(name);
  if (!group) groups->fail(name, "is null; expected an object");
  check_group(*group);
}

std::vector<std::string> parse_ignore(const JsonFields& quantization) {
  std::vector<std::string> ignore =
      quantization.strings("ignore").value_or(std::vector<std::string>());
  for (const std::string& layer : ignore) {
    if (!layer.starts_with("re:") && layer != "Linear") continue;
    quantization.fail("ignore", fmt::format("holds {}; expected the names of layers, such as "
                                            "\"lm_head\"",
                                            shown(layer)));
  }
  std::sort(ignore.begin(), ignore.end());
  return ignore;
}

}  // namespace

QuantizationConfig parse_quantization_config(const JsonFields& quantization) {
  expect_string(quantization, "quant_method", "compressed-tensors");
  expect_string(quantization, "format", "float-quantized");
  expect_missing(quantization, "kv_cache_scheme");
  if (const auto sparsity = quantization.object("sparsity_config")) {
    expect_string(*sparsity, "format", "dense", /*may_lack=*/true);
  }
  // Transforms (of SpinQuant, of QuIP) change what a layer computes.
  if (const auto transforms = quantization.object("transform_config");
      transforms && !transforms->names().empty()) {
    quantization.fail_value("transform_config", "null or {}");
  }
  check_groups(quantization);
  QuantizationConfig config;
  for (const std::string& layer : parse_ignore(quantization)) {
    config.rules.push_back({{LayerPattern::Kind::kName, layer}, std::nullopt});
  }
  const WeightScheme float8{.name = "compressed-tensors float-quantized"};
  config.rules.push_back({{LayerPattern::Kind::kClass, "Linear"}, float8});
  return config;
}

}  // namespace quire::loader_internal
