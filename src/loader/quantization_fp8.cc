// Hugging Face's fp8, as transformers and AutoFP8 write it.
#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "loader/quantization_methods.h"

namespace quire::loader_internal {
namespace {

constexpr int64_t kMaxFloat8Block = 1 << 20;

// Block by block with weight_scale_inv, else one weight_scale a layer.
WeightScheme fp8_scheme(const JsonFields& quantization) {
  WeightScheme scheme{.name = "fp8", .group_outputs = 0};
  const auto block = quantization.integers("weight_block_size", 1, kMaxFloat8Block);
  if (!block) return scheme;
  if (block->size() != 2) quantization.fail_value("weight_block_size", "two numbers");
  scheme.group_outputs = block->front();
  scheme.group_inputs = block->back();
  scheme.scale_leaf = "weight_scale_inv";
  return scheme;
}

// A layer that is kept: a name, which also means what is below it or ends like it, or a regular
// expression of a name or of one above it (transformers' should_convert_module).
void add_kept_layer(const JsonFields& quantization, const char* field, const std::string& text,
                    QuantizationConfig& config) {
  if (text.starts_with("re:")) {
    config.rules.push_back({read_target(quantization, field, text), std::nullopt});
    return;
  }
  config.rules.push_back({LayerPattern::tree(text), std::nullopt});
  if (text.find_first_of("*+?[](){}|^$\\") == std::string::npos) return;
  const std::string where =
      fmt::format("{}: the field {}", quantization.file(), quantization.name_of(field));
  config.rules.push_back(
      {LayerPattern::regex(fmt::format("(?:{})(?:(?<=\\.)|(?=\\.|$))", text), where),
       std::nullopt});
}

}  // namespace

QuantizationConfig read_fp8(const JsonFields& quantization) {
  const std::string scheme = quantization.string("activation_scheme").value_or("dynamic");
  if (scheme != "dynamic" && scheme != "static") {
    quantization.fail_value("activation_scheme", "\"dynamic\" or \"static\"");
  }
  expect_string(quantization, "fmt", "e4m3");
  expect_string(quantization, "scale_fmt", "float");
  expect_missing(quantization, "modules_to_convert");
  const char* field =
      quantization.has("modules_to_not_convert") ? "modules_to_not_convert" : "ignored_layers";
  QuantizationConfig config;
  // Where nothing is said, the output layer is kept.
  const std::vector<std::string> kept =
      quantization.strings(field).value_or(std::vector<std::string>{"lm_head"});
  for (const std::string& layer : kept) add_kept_layer(quantization, field, layer, config);
  config.rules.push_back({LayerPattern::layer_class("Linear"), fp8_scheme(quantization)});
  return config;
}

}  // namespace quire::loader_internal
