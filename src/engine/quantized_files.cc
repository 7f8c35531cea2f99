#include "engine/quantized_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "quire/error.h"

namespace quire {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxConfigBytes = 64 << 20;

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

// GPUs multiply float8 by float8: activations are rounded for each token. quire leaves them.
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

bool is_copied(const fs::path& file) {
  constexpr std::array<std::string_view, 9> kWeights{
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ot"};
  const std::string name = file.filename().string();
  const std::string extension = file.extension().string();
  return !name.starts_with('.') && name != "config.json" && name != "README.md" &&
         !name.ends_with(".index.json") &&
         std::find(kWeights.begin(), kWeights.end(), extension) == kWeights.end();
}

}  // namespace

void write_quantized_config(const fs::path& source, const fs::path& out,
                            const RoundingTarget& target, std::span<const std::string> kept) {
  const fs::path from = source / "config.json";
  Json config = parse_json_object(read_text_file(from, kMaxConfigBytes), from.string());
  config.erase("compression_config");
  config["quantization_config"] = quantization_config(target.scheme, kept);
  const fs::path path = out / "config.json";
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << config.dump(2) << '\n';
  file.close();
  if (!file) throw Error(fmt::format("{}: the file cannot be written.", path.string()));
}

void copy_texts(const fs::path& source, const fs::path& out) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (!entry.is_regular_file(error) || !is_copied(entry.path())) continue;
    fs::copy_file(entry.path(), out / entry.path().filename(), error);
    if (error) {
      throw Error(fmt::format("{}: the file cannot be copied: {}.", entry.path().string(),
                              error.message()));
    }
  }
}

}  // namespace quire
