#include "loader/quantization_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <set>

namespace quire {
namespace {

std::string describe_schemes(const QuantizationConfig& config) {
  std::set<std::string> schemes;
  for (const auto& [name, scheme] : config.layers) {
    if (scheme) schemes.insert(scheme->describe());
  }
  for (const LayerRule& rule : config.rules) {
    if (rule.scheme) schemes.insert(rule.scheme->describe());
  }
  return fmt::format("{}", fmt::join(schemes, "; "));
}

bool ends_with_one_of(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::ranges::any_of(endings,
                             [text](std::string_view ending) { return text.ends_with(ending); });
}

}  // namespace

std::optional<WeightScheme> QuantizationConfig::scheme_of(std::string_view layer) const {
  if (const auto found = layers.find(layer); found != layers.end()) return found->second;
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const LayerRule& each) {
    return each.pattern.matches(layer);
  });
  return rule == rules.end() ? std::nullopt : rule->scheme;
}

bool QuantizationConfig::is_gguf() const {
  return std::any_of(layers.begin(), layers.end(), [](const auto& layer) {
    return layer.second && layer.second->block_type != nullptr;
  });
}

bool QuantizationConfig::has_integers() const {
  const auto stores_integers = [](const std::optional<WeightScheme>& scheme) {
    return scheme && scheme->is_integer();
  };
  return std::any_of(layers.begin(), layers.end(),
                     [&](const auto& layer) { return stores_integers(layer.second); }) ||
         std::any_of(rules.begin(), rules.end(),
                     [&](const LayerRule& rule) { return stores_integers(rule.scheme); });
}

std::string QuantizationConfig::describe(std::span<const std::string> names) const {
  constexpr size_t kMaxNames = 5;
  if (names.empty()) return describe_schemes(*this);
  std::map<std::string, size_t> schemes;  // layers of each
  std::vector<std::string> dense;
  for (const std::string& name : names) {
    const std::optional<WeightScheme> scheme = scheme_of(name);
    if (scheme) {
      ++schemes[scheme->describe()];
    } else {
      dense.push_back(name);
    }
  }
  std::vector<std::string> parts;
  for (const auto& [scheme, count] : schemes) {
    parts.push_back(fmt::format("{}; {} of {} layers", scheme, count, names.size()));
  }
  if (parts.empty()) return "no layer";
  const size_t shown = std::min(dense.size(), kMaxNames);
  const auto end = dense.begin() + static_cast<std::ptrdiff_t>(shown);
  return fmt::format(
      "{}{}{}", fmt::join(parts, "; "),
      dense.empty() ? "" : fmt::format(", not {}", fmt::join(dense.begin(), end, ", ")),
      dense.size() > shown ? fmt::format(" and {} more", dense.size() - shown) : "");
}

bool is_unused_by_quantised_layers(std::string_view tensor) {
  return ends_with_one_of(tensor, {".input_scale", ".input_zero_point", ".input_g_idx",
                                   ".activation_scale", ".output_scale", ".output_zero_point"});
}

bool is_kv_cache_scale(std::string_view tensor) {
  return ends_with_one_of(tensor, {".k_scale", ".v_scale", ".kv_scale", ".k_proj.output_scale",
                                   ".v_proj.output_scale"});
}

bool is_float8_attention_scale(std::string_view tensor) {
  return ends_with_one_of(tensor, {".q_scale", ".prob_scale"});
}

}  // namespace quire
