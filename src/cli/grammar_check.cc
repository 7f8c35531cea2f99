#include "cli/grammar_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/json_writer.h"
#include "base/suggest.h"
#include "grammar/grammar.h"
#include "grammar/json_tree.h"
#include "quire/error.h"

namespace quire::cli {
namespace {

using grammar::JsonTree;

constexpr int kMaxLineDepth = 200;

std::vector<std::string> texts_of(const JsonTree& list, std::string_view name) {
  std::vector<std::string> texts;
  for (const JsonTree& item : list.items) {
    if (item.kind == JsonTree::Kind::kString) texts.push_back(item.text);
  }
  if (list.kind != JsonTree::Kind::kArray || texts.size() < list.items.size()) {
    throw Error(fmt::format("{}: expected an array of strings", name));
  }
  return texts;
}

const std::string& text_of(const JsonTree& value, std::string_view name) {
  if (value.kind != JsonTree::Kind::kString) {
    throw Error(fmt::format("{}: expected a string, got {}", name, kind_name(value)));
  }
  return value.text;
}

struct GrammarLine {
  std::string kind;
  const JsonTree* constraint = nullptr;
  std::vector<std::string> texts;
};

GrammarLine read_grammar_line(const JsonTree& object) {
  static const std::vector<std::string> kKinds = {"json_schema", "regex", "grammar", "choice"};
  if (object.kind != JsonTree::Kind::kObject) throw Error("expected a JSON object");
  GrammarLine line;
  for (const auto& [name, value] : object.members) {
    if (name == "texts") {
      line.texts = texts_of(value, name);
    } else if (std::ranges::find(kKinds, name) == kKinds.end()) {
      std::vector<std::string> known = kKinds;
      known.emplace_back("texts");
      throw Error(fmt::format("unexpected field {}{}", name, did_you_mean(name, known)));
    } else if (line.constraint != nullptr) {
      throw Error(fmt::format("there are both {} and {}", line.kind, name));
    } else {
      line.kind = name;
      line.constraint = &value;
    }
  }
  if (line.constraint == nullptr) {
    throw Error("expected one of the fields json_schema, regex, grammar and choice");
  }
  return line;
}

grammar::GrammarPtr compile(const GrammarLine& line, const grammar::CompileLimits& limits) {
  if (line.kind == "json_schema") {
    return grammar::compile_json_schema(line.constraint->raw, limits);
  }
  if (line.kind == "regex") {
    return grammar::compile_regex(text_of(*line.constraint, line.kind), limits);
  }
  if (line.kind == "grammar") {
    return grammar::compile_gbnf(text_of(*line.constraint, line.kind), limits);
  }
  return grammar::compile_choice(texts_of(*line.constraint, line.kind), limits);
}

// To four digits behind the point.
double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

void append_booleans(JsonWriter& json, std::string_view name, const std::vector<bool>& values) {
  json.key(name).begin_array();
  for (const bool value : values) json.value(value);
  json.end_array();
}

// The bits of the lowest tokens first, a byte in two hexadecimal digits.
std::string hex_of(const std::vector<uint32_t>& mask) {
  std::string hex;
  for (const uint32_t word : mask) {
    for (int shift = 0; shift < 32; shift += 8) {
      for (const uint32_t digit : {word >> (shift + 4) & 15, word >> shift & 15}) {
        hex += "0123456789abcdef"[digit];
      }
    }
  }
  return hex;
}

void append_masks(JsonWriter& json, const GrammarCheck& check) {
  std::vector<bool> generated;
  bool has_kept = false;
  for (const MaskedText& text : check.masked) {
    generated.push_back(text.is_generated);
    has_kept |= !text.masks.empty();
  }
  append_booleans(json, "generated", generated);
  const MaskTimes times = mask_times(check).value_or(MaskTimes{});
  json.key("mask_us").begin_object().member("mean", rounded(times.mean));
  json.member("p99", rounded(times.p99)).member("max", rounded(times.max)).end_object();
  if (!has_kept) return;
  json.key("masks").begin_array();
  for (const MaskedText& text : check.masked) {
    json.begin_object().key("token_ids").values(text.token_ids).key("allowed").begin_array();
    for (const std::vector<uint32_t>& mask : text.masks) json.value(hex_of(mask));
    json.end_array().end_object();
  }
  json.end_array();
}

}  // namespace

GrammarCheck check_grammar_line(std::string_view line, std::string_view where,
                                const grammar::CompileLimits& limits, const MaskChecker* masks,
                                const grammar::GenerationOptions& generation, bool keeps_masks) {
  using Clock = std::chrono::steady_clock;
  GrammarCheck check;
  JsonTree object;
  GrammarLine parsed;
  try {
    object = grammar::parse_json_tree(line, kMaxLineDepth);
    parsed = read_grammar_line(object);
  } catch (const Error& error) {
    check.error = fmt::format("{}: {}", where, error.what());
    return check;
  }
  grammar::GrammarPtr grammar;
  grammar::LanguagePtr language;
  const Clock::time_point begin = Clock::now();
  try {
    grammar = compile(parsed, limits);
    if (masks != nullptr) language = grammar::make_language(grammar, generation, limits);
  } catch (const Error& error) {
    check.error = error.what();
    return check;
  }
  check.compile_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  for (const std::string& text : parsed.texts) {
    check.accepted.push_back(grammar::accepts(grammar, text));
    if (masks != nullptr) check.masked.push_back(masks->check(language, text, keeps_masks));
  }
  check.has_masks = masks != nullptr;
  return check;
}

std::optional<MaskTimes> mask_times(const GrammarCheck& check) {
  std::vector<double> times;
  for (const MaskedText& text : check.masked) {
    times.insert(times.end(), text.times_us.begin(), text.times_us.end());
  }
  if (times.empty()) return {};
  std::ranges::sort(times);
  const size_t count = times.size();
  return MaskTimes{
      .mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(count),
      .p99 = times[count - 1 - count / 100],
      .max = times.back()};
}

std::string to_json_line(const GrammarCheck& check) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("compiled", !check.error);
  if (check.error) {
    json.member("error", *check.error);
  } else {
    json.member("compile_ms", rounded(check.compile_ms));
    append_booleans(json, "accepted", check.accepted);
    if (check.has_masks) append_masks(json, check);
  }
  json.end_object();
  return out;
}

}  // namespace quire::cli
