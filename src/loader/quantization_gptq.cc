// GPTQ's and AWQ's quantization_config, as AutoGPTQ, GPTQModel and AutoAWQ write it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "loader/quantization_methods.h"

#include "base/lower_case.h"

namespace quire::loader_internal {
namespace {

constexpr const char* kOutputLayer = "lm_head";

int read_bits(const JsonFields& fields, const char* field) {
  const int64_t bits = fields.required_integer(field, 1, 64);
  if (bits != 4 && bits != 8) fields.fail_value(field, "4 or 8");
  return static_cast<int>(bits);
}

// Both libraries quantise the layers of the decoder, and the output layer only where that is said.
void add_output_layer(const JsonFields& quantization, QuantizationConfig& config) {
  if (quantization.boolean("lm_head").value_or(false)) return;
  config.layers.emplace(kOutputLayer, std::nullopt);
}

void add_linear_layers(const WeightScheme& scheme, QuantizationConfig& config) {
  config.rules.push_back({LayerPattern::layer_class("Linear"), scheme});
}

// "gptq" or "gptq_v2".
bool stores_zeros_less_one(const JsonFields& quantization) {
  const char* field = quantization.has("checkpoint_format") ? "checkpoint_format" : "format";
  const std::string format = quantization.string(field).value_or("gptq");
  if (format != "gptq" && format != "gptq_v2") {
    quantization.fail_value(field, "\"gptq\" or \"gptq_v2\"");
  }
  return format == "gptq";
}

WeightScheme gptq_scheme(const JsonFields& quantization) {
  return {.name = "GPTQ",
          .layout = WeightLayout::kGptq,
          .bits = read_bits(quantization, "bits"),
          .group_inputs = read_group_size(quantization, "group_size"),
          .symmetric = quantization.boolean("sym").value_or(true),
          .act_order = quantization.boolean("desc_act").value_or(false),
          .zeros_less_one = stores_zeros_less_one(quantization)};
}

// What an entry of `dynamic` changes in the scheme of the layers that it names.
WeightScheme changed_scheme(const JsonFields& changes, WeightScheme scheme) {
  for (const std::string& field : changes.names()) {
    if (field == "bits") {
      scheme.bits = read_bits(changes, "bits");
    } else if (field == "group_size") {
      scheme.group_inputs = read_group_size(changes, "group_size");
    } else if (field == "sym") {
      scheme.symmetric = changes.boolean("sym").value_or(scheme.symmetric);
    } else if (field == "desc_act") {
      scheme.act_order = changes.boolean("desc_act").value_or(scheme.act_order);
    } else if (field == "format" || field == "quant_method" || field == "pack_dtype") {
      changes.fail_value(field.c_str(), "bits, group_size, sym and desc_act only");
    }  // Others, such as mse and damp_percent, are about how the numbers were found.
  }
  return scheme;
}

// GPTQModel's `dynamic`: regular expressions, each with what differs in the layers that it matches;
// "-:" before one means layers that are not quantised.
void add_dynamic(const JsonFields& quantization, const WeightScheme& scheme,
                 QuantizationConfig& config) {
  const auto dynamic = quantization.object("dynamic");
  if (!dynamic) return;
  const std::string where =
      fmt::format("{}: the field {}", quantization.file(), quantization.name_of("dynamic"));
  for (const std::string& key : dynamic->names()) {
    const bool is_signed = key.starts_with("-:") || key.starts_with("+:");
    LayerPattern pattern = LayerPattern::regex(is_signed ? key.substr(2) : key, where);
    std::optional<WeightScheme> changed;
    if (!key.starts_with("-:")) {
      const auto changes = dynamic->object(key.c_str());
      changed = changes ? changed_scheme(*changes, scheme) : scheme;
    }
    config.rules.push_back({std::move(pattern), std::move(changed)});
  }
}

// The layers of a block that are quantised, in lists of those that were quantised at once.
std::vector<std::string> block_layers(const JsonFields& quantization) {
  constexpr const char* kField = "modules_in_block_to_quantize";
  std::vector<std::string> layers;
  const nlohmann::ordered_json* lists = quantization.find(kField);
  if (lists == nullptr) return layers;
  const auto add = [&](const nlohmann::ordered_json& name) {
    if (!name.is_string()) quantization.fail_value(kField, "lists of layers' names");
    layers.push_back("." + name.get<std::string>());
  };
  if (!lists->is_array()) quantization.fail_value(kField, "lists of layers' names");
  for (const nlohmann::ordered_json& list : *lists) {
    if (list.is_array()) {
      for (const nlohmann::ordered_json& name : list) add(name);
    } else {
      add(list);
    }
  }
  if (layers.empty()) quantization.fail_value(kField, "null or lists of layers' names");
  return layers;
}

std::string first_field(const JsonFields& fields, const char* name, const char* older) {
  return !fields.has(name) && fields.has(older) ? older : name;
}

// AutoAWQ leaves the layers that have one of these in their names.
void add_kept_layers(const JsonFields& quantization, QuantizationConfig& config) {
  const auto names = quantization.strings("modules_to_not_convert");
  if (!names) return;
  for (const std::string& name : *names) {
    config.rules.push_back({LayerPattern::part(name), std::nullopt});
  }
}

}  // namespace

QuantizationConfig read_gptq(const JsonFields& quantization) {
  expect_string(quantization, "pack_dtype", "int32");
  const WeightScheme scheme = gptq_scheme(quantization);
  QuantizationConfig config;
  add_output_layer(quantization, config);
  add_dynamic(quantization, scheme, config);
  const std::vector<std::string> layers = block_layers(quantization);
  for (const std::string& layer : layers) {
    config.rules.push_back({LayerPattern::ending(layer), scheme});
  }
  if (layers.empty()) add_linear_layers(scheme, config);
  return config;
}

QuantizationConfig read_awq(const JsonFields& quantization) {
  const std::string version = quantization.string("version").value_or("gemm");
  if (!same_in_lower_case(version, "gemm")) quantization.fail_value("version", "\"gemm\"");
  if (quantization.string("backend").value_or("") == "llm-awq") {
    quantization.fail_value("backend", "\"autoawq\"");
  }
  const std::string bits = first_field(quantization, "bits", "w_bit");
  if (quantization.required_integer(bits.c_str(), 1, 64) != 4) {
    quantization.fail_value(bits.c_str(), "4");
  }
  const std::string group_size = first_field(quantization, "group_size", "q_group_size");
  QuantizationConfig config;
  add_output_layer(quantization, config);
  add_kept_layers(quantization, config);
  add_linear_layers({.name = "AWQ",
                     .layout = WeightLayout::kAwq,
                     .bits = 4,
                     .group_inputs = read_group_size(quantization, group_size.c_str()),
                     .symmetric = !quantization.boolean("zero_point").value_or(true)},
                    config);
  return config;
}

}  // namespace quire::loader_internal
