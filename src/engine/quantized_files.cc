#include "engine/quantized_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/model_files.h"

namespace quire {
namespace fs = std::filesystem;
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

Json quantization_config(const WeightScheme& scheme, std::span<const std::string> kept) {
  std::vector<std::string> ignored(kept.begin(), kept.end());
  // transformers has an output layer for tied models, too, and would look for its scales.
  if (std::find(ignored.begin(), ignored.end(), "lm_head") == ignored.end()) {
    ignored.emplace_back("lm_head");
  }
  const char* format = scheme.is_integer() ? "pack-quantized" : "float-quantized";
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", weights_of(scheme)},
              {"input_activations", activations_of(scheme)},
              {"output_activations", nullptr},
              {"format", format}}}}},
          {"ignore", ignored},
          {"kv_cache_scheme", nullptr}};
}

}  // namespace

void write_quantized_config(const fs::path& source, const fs::path& out,
                            const RoundingTarget& target, std::span<const std::string> kept) {
  rewrite_config(source, out, [&](Json& config) {
    config.erase("compression_config");
    config["quantization_config"] = quantization_config(target.scheme, kept);
  });
}

}  // namespace quire
