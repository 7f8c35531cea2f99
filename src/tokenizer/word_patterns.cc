#include "tokenizer/word_patterns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire::tokenizer_internal {
namespace {

using nlohmann::json;

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDigit = R"(\p{N})";

// A pattern's expressions cut one after the other what those before left.
struct NamedPattern {
  std::vector<std::string_view> names;
  std::vector<const char*> expressions;
  const char* normalizer = nullptr;
  bool ignore_merges = false;
  bool adds_bos = false;
};

const std::vector<NamedPattern>& patterns() {
  static const std::vector<NamedPattern> kPatterns = {
      // llama.cpp's choice for files that name no pattern.
      {.names = {"default"},
       .expressions = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {.names = {"gpt-2", "phi-2", "olmo"}, .expressions = {kGpt2}},
      {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell"},
       .expressions = {kDigit, kGpt2}},
      {.names = {"qwen2"}, .expressions = {kQwen2}, .normalizer = "NFC"},
      {.names = {"deepseek-r1-qwen"}, .expressions = {kQwen2}},
      {.names = {"llama-bpe", "llama3", "llama-v3", "smaug-bpe"},
       .expressions = {kLlama3},
       .ignore_merges = true,
       .adds_bos = true},
      {.names = {"dbrx"}, .expressions = {kLlama3}},
      {.names = {"tekken"}, .expressions = {kTekken}, .ignore_merges = true, .adds_bos = true},
      {.names = {"gpt-4o"}, .expressions = {kGpt4o}}};
  return kPatterns;
}

const NamedPattern& find_pattern(std::string_view name) {
  std::vector<std::string_view> known;
  for (const NamedPattern& pattern : patterns()) {
    if (std::find(pattern.names.begin(), pattern.names.end(), name) != pattern.names.end()) {
      return pattern;
    }
    known.insert(known.end(), pattern.names.begin(), pattern.names.end());
  }
  throw Error(fmt::format(
      "the way of cutting text into words is {}, which quire does not know; it knows {}.",
      json(std::string(name.substr(0, 60))).dump(-1, ' ', true, json::error_handler_t::replace),
      fmt::join(known, ", ")));
}

}  // namespace

WordPattern word_pattern(std::string_view name) {
  const NamedPattern& found = find_pattern(name.empty() ? "default" : name);
  WordPattern result;
  result.ignore_merges = found.ignore_merges;
  result.adds_bos = found.adds_bos;
  if (found.normalizer != nullptr) result.normalizer = {{"type", found.normalizer}};
  json steps = json::array();
  for (const char* expression : found.expressions) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", expression}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  result.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return result;
}

}  // namespace quire::tokenizer_internal
