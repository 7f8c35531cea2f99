#include "loader/quantization_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <set>

namespace quire {
namespace {

std::string_view class_of(std::string_view layer) {
  return layer.ends_with("embed_tokens") ? "Embedding" : "Linear";
}

}  // namespace

bool LayerPattern::matches(std::string_view layer) const {
  switch (kind) {
    case Kind::kName:
      return layer == text;
    case Kind::kClass:
      return class_of(layer) == text;
  }
  return false;
}

std::optional<WeightScheme> QuantizationConfig::scheme_of(std::string_view layer) const {
  if (const auto found = layers.find(layer); found != layers.end()) return found->second;
  const auto rule = std::find_if(rules.begin(), rules.end(), [&](const LayerRule& each) {
    return each.pattern.matches(layer);
  });
  return rule == rules.end() ? std::nullopt : rule->scheme;
}

std::string QuantizationConfig::describe() const {
  constexpr size_t kMaxNames = 5;
  std::set<std::string> schemes;
  std::vector<std::string> dense;
  for (const auto& [layer, scheme] : layers) schemes.insert(scheme.describe());
  for (const LayerRule& rule : rules) {
    if (rule.scheme) {
      schemes.insert(rule.scheme->describe());
    } else {
      dense.push_back(rule.pattern.text);
    }
  }
  const size_t shown = std::min(dense.size(), kMaxNames);
  const auto end = dense.begin() + static_cast<std::ptrdiff_t>(shown);
  return fmt::format(
      "{}{}{}", fmt::join(schemes, "; "),
      dense.empty() ? "" : fmt::format(", but for {}", fmt::join(dense.begin(), end, ", ")),
      dense.size() > shown ? fmt::format(" and {} more layers", dense.size() - shown) : "");
}

}  // namespace quire
