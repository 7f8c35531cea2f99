#include "engine/quantized_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

Json arguments_of(int bits, const char* type, bool symmetric, const char* strategy) {
  return {{"num_bits", bits}, {"type", type}, {"symmetric", symmetric}, {"strategy", strategy}};
}

Json weights_of(const WeightScheme& scheme) {
  if (!scheme.is_integer()) {
    Json weights = arguments_of(8, "float", true, "channel");
    weights["dynamic"] = false;
    return weights;
  }
  Json weights = arguments_of(scheme.bits, "int", scheme.symmetric, "group");
  weights["group_size"] = scheme.group_inputs;
  weights["dynamic"] = false;
  return weights;
}

// GPUs multiply float8 by float8, so activations are rounded for each token. quire leaves them
// unrounded.
Json activations_of(const WeightScheme& scheme) {
  if (scheme.is_integer()) return nullptr;
  Json activations = arguments_of(8, "float", true, "token");
  activations["dynamic"] = true;
  return activations;
}

const char* format_of(const WeightScheme& scheme) {
  return scheme.is_integer() ? "pack-quantized" : "float-quantized";
}

Json group_of(const std::string& target, const WeightScheme& scheme) {
  return {{"targets", Json::array({target})},
          {"weights", weights_of(scheme)},
          {"input_activations", activations_of(scheme)},
          {"output_activations", nullptr},
          {"format", format_of(scheme)}};
}

// A scale for each layer's keys, and one for its values.
Json kv_cache_of(const QuantisePlan& plan) {
  if (!plan.has_kv_scales) return nullptr;
  Json cache = arguments_of(8, "float", true, "tensor");
  cache["dynamic"] = false;
  return cache;
}

// The layers that stay. transformers has an output layer for tied models, too, and would look for
// its scales.
std::vector<std::string> ignored_layers(const QuantisePlan& plan) {
  constexpr const char* kOutput = "lm_head";
  std::vector<std::string> ignored = plan.kept;
  if (plan.output != kOutput && std::ranges::find(ignored, kOutput) == ignored.end()) {
    ignored.emplace_back(kOutput);
  }
  return ignored;
}

}  // namespace

void set_quantization(Json& config, const RoundingTargets& targets, const QuantisePlan& plan) {
  Json groups = {{"group_0", group_of("Linear", targets.layers.scheme)}};
  if (!plan.output.empty()) groups["group_1"] = group_of(plan.output, targets.output->scheme);
  config.erase("compression_config");
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"}, {"format", format_of(targets.layers.scheme)},
      {"quantization_status", "compressed"},  {"config_groups", std::move(groups)},
      {"ignore", ignored_layers(plan)},       {"kv_cache_scheme", kv_cache_of(plan)}};
}

}  // namespace quire
