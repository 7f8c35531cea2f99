#include "hub/gguf_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/lower_case.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kExtension = ".gguf";

// A file's name without its extension and, for a part of a split model, without the part's number.
std::string stem_of(const std::string& name) {
  constexpr std::string_view kPattern = "-00000-of-00000";  // with any digits
  std::string stem = name.substr(0, name.size() - kExtension.size());
  if (stem.size() <= kPattern.size()) return stem;
  const size_t begin = stem.size() - kPattern.size();
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const char c = stem[begin + i];
    const bool fits =
        kPattern[i] == '0' ? std::isdigit(static_cast<unsigned char>(c)) != 0 : kPattern[i] == c;
    if (!fits) return stem;
  }
  return stem.substr(0, begin);
}

// Projectors of images are no models of their own.
bool is_model(std::string_view name) {
  return name.ends_with(kExtension) && name.size() > kExtension.size() &&
         name.find("mmproj") == std::string_view::npos;
}

bool is_meant(const std::string& stem, const std::string& variant) {
  std::string wanted = lower_case(variant);
  if (wanted.ends_with(kExtension)) wanted.resize(wanted.size() - kExtension.size());
  const std::string found = lower_case(stem);
  if (!found.ends_with(wanted)) return false;
  if (found.size() == wanted.size()) return true;
  const char before = found[found.size() - wanted.size() - 1];
  return std::string_view("-._/").find(before) != std::string_view::npos;
}

using Models = std::map<std::string, std::vector<std::string>>;  // files by stem

Models models_in(const std::vector<std::string>& names) {
  Models models;
  for (const std::string& name : names) {
    if (is_model(name)) models[stem_of(name)].push_back(name);
  }
  for (auto& [stem, files] : models) std::sort(files.begin(), files.end());
  return models;
}

std::string listing_of(const Models& models) {
  constexpr size_t kMaxShown = 40;
  std::vector<std::string> shown;
  for (const auto& [stem, files] : models) {
    if (shown.size() == kMaxShown) break;
    shown.push_back(files.front());
  }
  const size_t more = models.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

GgufName parse_gguf_name(std::string_view name) {
  const size_t colon = name.rfind(':');
  const bool is_named =
      colon != std::string_view::npos && name.find('/', colon) == std::string_view::npos;
  if (!is_named) return {std::string(name), ""};
  return {std::string(name.substr(0, colon)), std::string(name.substr(colon + 1))};
}

std::vector<std::string> choose_gguf(const std::vector<std::string>& names,
                                     std::string_view variant, std::string_view where) {
  const Models all = models_in(names);
  if (all.empty()) throw Error(fmt::format("{}: there is no GGUF file.", where));
  Models meant;
  for (const auto& [stem, files] : all) {
    if (variant.empty() || is_meant(stem, std::string(variant))) meant.emplace(stem, files);
  }
  if (meant.size() == 1) return meant.begin()->second;
  if (variant.empty()) {
    throw Error(
        fmt::format("{}: there are {} GGUF models: {}. Say which after a colon, by how its name "
                    "ends, such as {}:Q4_K_M.",
                    where, all.size(), listing_of(all), where));
  }
  if (meant.empty()) {
    throw Error(fmt::format("{}: no GGUF file's name ends in {}; there are {}.", where, variant,
                            listing_of(all)));
  }
  throw Error(fmt::format("{}: {} GGUF models are called {}: {}. Give a whole name.", where,
                          meant.size(), variant, listing_of(meant)));
}

bool holds_gguf(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return is_model(name); });
}

}  // namespace quire
