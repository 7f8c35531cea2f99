#include "loader/unexpected_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

#include "quire/error.h"

namespace quire {
namespace {

bool has(const ParameterMap& parameters, std::string_view module, std::string_view leaf) {
  return !parameters.find(fmt::format("{}.{}", module, leaf)).empty();
}

// What is wrong with a tensor that belongs to a layer of the model, but not as the config has it
// quantised; empty: it belongs to none.
std::string why_no_part(const CheckpointTensor& tensor, const ParameterMap& parameters,
                        std::string_view config) {
  constexpr std::array<std::string_view, 2> kPacked{"qweight", "weight_packed"};
  constexpr std::array<std::string_view, 10> kQuantised{
      "qweight",      "qzeros",           "scales",       "g_idx",        "weight_packed",
      "weight_scale", "weight_scale_inv", "weight_shape", "weight_g_idx", "weight_zero_point"};
  const size_t dot = tensor.name.rfind('.');
  if (dot == std::string::npos) return "";
  const std::string_view module = std::string_view(tensor.name).substr(0, dot);
  const std::string_view leaf = std::string_view(tensor.name).substr(dot + 1);
  if (leaf == "weight") {
    const auto packed = std::ranges::find_if(
        kPacked, [&](std::string_view each) { return has(parameters, module, each); });
    if (packed == kPacked.end()) return "";
    return fmt::format("{} quantises this layer; expected {}.{}", config, module, *packed);
  }
  const bool is_of_quantised = std::ranges::find(kQuantised, leaf) != kQuantised.end();
  const bool is_dense = has(parameters, module, "weight") &&
                        !has(parameters, module, "weight_scale") &&
                        !has(parameters, module, "weight_scale_inv");
  if (!is_of_quantised || !is_dense) return "";
  return fmt::format("{} does not quantise this layer; expected {}.weight", config, module);
}

}  // namespace

void throw_unexpected(const CheckpointTensor& tensor, const ParameterMap& parameters,
                      std::string_view config) {
  const std::string why = why_no_part(tensor, parameters, config);
  if (!why.empty()) {
    throw Error(fmt::format("{}: the tensor {} ({}) is not one that the layer has: {}.",
                            tensor.file, tensor.name_in_file(), tensor.describe(), why));
  }
  throw Error(fmt::format("{}: the tensor {} ({}) is no part of the model that {} describes.",
                          tensor.file, tensor.name_in_file(), tensor.describe(), config));
}

}  // namespace quire
