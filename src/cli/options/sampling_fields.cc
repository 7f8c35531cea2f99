#include "cli/options/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/json_text.h"
#include "base/suggest.h"
#include "cli/options/option_helpers.h"
#include "cli/usage_error.h"
#include "parsers/constraint_fields.h"

namespace quire::cli {
namespace {

enum class Kind { kInteger, kNumber, kBoolean, kTexts, kTokenIds, kBiases, kConstraint };

// How a field's value is stored, and how help shows its default.
struct Access {
  // Stores a value that has been checked to be of the field's kind.
  void (*store)(SamplingParams& params, const Json& value);
  std::string (*show)(const SamplingParams& params);
};

struct Field {
  std::string_view name;
  Kind kind;
  bool nullable;
  std::string_view placeholder;
  std::string_view help;
  Access access;
};

template <typename T>
std::string shown(const T& value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else {
    return "none";  // a list
  }
}

template <typename T>
std::string shown(const std::optional<T>& value) {
  return value ? shown(*value) : "none";
}

template <auto Member>
constexpr Access plain() {
  using Value = std::remove_cvref_t<decltype(std::declval<SamplingParams>().*Member)>;
  return {.store = [](SamplingParams& params,
                      const Json& value) { params.*Member = value.get<Value>(); },
          .show = [](const SamplingParams& params) { return shown(params.*Member); }};
}

template <auto Member>
constexpr Access optional() {
  using Optional = std::remove_cvref_t<decltype(std::declval<SamplingParams>().*Member)>;
  return {.store =
              [](SamplingParams& params, const Json& value) {
                params.*Member = value.is_null()
                                     ? Optional()
                                     : Optional(value.get<typename Optional::value_type>());
              },
          .show = [](const SamplingParams& params) { return shown(params.*Member); }};
}

constexpr Access biases() {
  return {.store =
              [](SamplingParams& params, const Json& value) {
                params.logit_bias.clear();
                for (const auto& [id, bias] : value.items()) {
                  params.logit_bias[std::stoi(id)] = bias.get<float>();
                }
              },
          .show = [](const SamplingParams& params) { return shown(params.logit_bias); }};
}

constexpr std::string_view kResponseFormat = "response_format";
constexpr std::string_view kStructuredOutputs = "structured_outputs";

// Of constraints apply() stores what set() has read.
constexpr Access constraint() {
  return {.store = [](SamplingParams&, const Json&) {},
          .show = [](const SamplingParams&) { return std::string("none"); }};
}

using P = SamplingParams;
constexpr std::array kFields = {
    Field{"n", Kind::kInteger, false, "N", "Outputs for each prompt", plain<&P::n>()},
    Field{"temperature", Kind::kNumber, false, "T",
          "0 takes the likeliest token; higher is more varied", plain<&P::temperature>()},
    Field{"top_k", Kind::kInteger, false, "K", "Sample among the K likeliest tokens; 0: all",
          plain<&P::top_k>()},
    Field{"top_p", Kind::kNumber, false, "P",
          "Sample among the fewest tokens whose probabilities add up to P", plain<&P::top_p>()},
    Field{"min_p", Kind::kNumber, false, "P",
          "Leave out tokens below P times the likeliest one's probability", plain<&P::min_p>()},
    Field{"repetition_penalty", Kind::kNumber, false, "R",
          "Above 1: make tokens of the prompt and the output less likely",
          plain<&P::repetition_penalty>()},
    Field{"presence_penalty", Kind::kNumber, false, "R",
          "Subtract R from the logit of each token generated before",
          plain<&P::presence_penalty>()},
    Field{"frequency_penalty", Kind::kNumber, false, "R",
          "Subtract R for each time a token was generated", plain<&P::frequency_penalty>()},
    Field{"logit_bias", Kind::kBiases, false, "ID:BIAS",
          "Add BIAS to the logit of token ID; repeatable", biases()},
    Field{"max_tokens", Kind::kInteger, true, "N",
          "Tokens to generate; 'none': as many as the context holds", optional<&P::max_tokens>()},
    Field{"min_tokens", Kind::kInteger, false, "N", "No end before this many tokens",
          plain<&P::min_tokens>()},
    Field{"stop", Kind::kTexts, false, "TEXT", "End the output before this text; repeatable",
          plain<&P::stop>()},
    Field{"stop_token_ids", Kind::kTokenIds, false, "ID,...",
          "End the output at one of these tokens", plain<&P::stop_token_ids>()},
    Field{"include_stop_str_in_output", Kind::kBoolean, false, "",
          "Keep the stop text at the output's end", plain<&P::include_stop_str_in_output>()},
    Field{"ignore_eos", Kind::kBoolean, false, "", "Go on after the model's end-of-sequence token",
          plain<&P::ignore_eos>()},
    Field{"skip_special_tokens", Kind::kBoolean, false, "", "Keep special tokens in the text",
          plain<&P::skip_special_tokens>()},
    Field{"seed", Kind::kInteger, true, "N", "Make sampling repeat itself", optional<&P::seed>()},
    Field{"logprobs", Kind::kInteger, true, "N",
          "Report each token's log-probability and those of the N likeliest (--json)",
          optional<&P::logprobs>()},
    Field{"prompt_logprobs", Kind::kInteger, true, "N", "The same for the prompt's tokens (--json)",
          optional<&P::prompt_logprobs>()},
    // Of lines only: constraint_options.h has the options.
    Field{kResponseFormat, Kind::kConstraint, true, "", "", constraint()},
    Field{kStructuredOutputs, Kind::kConstraint, true, "", "", constraint()},
};

const Field* find_field(std::string_view name) {
  const auto* const field = std::find_if(kFields.begin(), kFields.end(),
                                         [&](const Field& known) { return known.name == name; });
  return field == kFields.end() ? nullptr : field;
}

// Integers are stored in 32 or 64 bits, the seed without a sign; what fits none of them is refused
// here, ranges by SamplingParams::validate().
bool integer_fits(std::string_view name, const Json& value) {
  if (!value.is_number_integer()) return false;
  if (name == "seed") return value.is_number_unsigned() || value.get<int64_t>() >= 0;
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(kMax);
  return value.get<int64_t>() >= -kMax;
}

// What integer_fits() takes, in words.
std::string integer_range(std::string_view name) {
  if (name == "seed") {
    return fmt::format("an integer from 0 to {}", std::numeric_limits<uint64_t>::max());
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return fmt::format("an integer from {} to {}", -kMax, kMax);
}

bool is_token_id(std::string_view text) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end == text.data() + text.size() && id >= 0;
}

std::string expected(const Field& field) {
  switch (field.kind) {
    case Kind::kInteger:
      return integer_range(field.name) + (field.nullable ? " or null" : "");
    case Kind::kNumber:
      return "a number";
    case Kind::kBoolean:
      return "true or false";
    case Kind::kTexts:
      return "a string or an array of strings";
    case Kind::kTokenIds:
      return "an array of token ids";
    case Kind::kBiases:
      return "an object of token ids and numbers, like {\"42\": -1.5}";
    case Kind::kConstraint:
      return "an object";
  }
  return "";
}

bool has_kind(const Field& field, const Json& value) {
  switch (field.kind) {
    case Kind::kInteger:
      return integer_fits(field.name, value);
    case Kind::kNumber:
      return value.is_number();
    case Kind::kBoolean:
      return value.is_boolean();
    case Kind::kTexts:
      return value.is_array() && std::all_of(value.begin(), value.end(),
                                             [](const Json& item) { return item.is_string(); });
    case Kind::kTokenIds:
      return value.is_array();
    case Kind::kBiases:
      return value.is_object() &&
             std::all_of(value.items().begin(), value.items().end(), [](const auto& item) {
               return is_token_id(item.key()) && item.value().is_number();
             });
    case Kind::kConstraint:
      return value.is_object();
  }
  return false;
}

// The value of an option as the JSON that a line would hold.
Json value_from_option(const Field& field, const std::string& text, const std::string& option) {
  const auto fail = [&]() -> UsageError {
    const std::string what = field.kind == Kind::kNumber     ? "a number"
                             : field.kind == Kind::kTokenIds ? "token ids like 1,2,3"
                             : field.kind == Kind::kBiases
                                 ? "a token id and a number like 42:-1.5"
                                 : integer_range(field.name) + (field.nullable ? " or 'none'" : "");
    return UsageError(fmt::format("{}: expected {}, got '{}'", option, what, text));
  };
  const auto number = [&](std::string_view digits) -> Json {
    Json value = Json::parse(digits, nullptr, false);
    if (!value.is_number()) throw fail();
    return value;
  };
  if (field.kind == Kind::kTexts) return text;
  if (field.nullable && text == "none") return nullptr;
  if (field.kind == Kind::kTokenIds) {
    Json ids = Json::parse("[" + text + "]", nullptr, false);
    if (!ids.is_array() || ids.empty()) throw fail();
    return ids;
  }
  if (field.kind == Kind::kBiases) {
    const size_t colon = text.find(':');
    if (colon == std::string::npos || !is_token_id(text.substr(0, colon))) throw fail();
    return Json{{text.substr(0, colon), number(text.substr(colon + 1))}};
  }
  // "-1" and ".5" are numbers to a user, and ".5" not to JSON.
  const std::string digits = text.starts_with('.') ? "0" + text : text;
  Json value = number(digits);
  if (field.kind == Kind::kInteger && !integer_fits(field.name, value)) throw fail();
  return value;
}

// What a field is, or a switch as help shows it, if neither the option nor the model says.
std::string shown_default(const Field& field) {
  return field.kind == Kind::kBoolean ? "off" : field.access.show(SamplingParams());
}

// Whether a kBoolean is true where nothing says otherwise.
bool is_on_by_default(const Field& field) {
  return field.access.show(SamplingParams()) == shown(true);
}

std::string dashed(std::string_view name) {
  std::string option(name);
  std::replace(option.begin(), option.end(), '_', '-');
  return "--" + option;
}

}  // namespace

void SamplingFields::set(std::string_view name, const Json& value, std::string_view where,
                         std::string_view text) {
  const Field* field = find_field(name);
  if (field == nullptr) {
    throw Error(fmt::format("{}: unknown field {}{}", where, name, did_you_mean(name, names())));
  }
  const std::string place = fmt::format("{}: {}", where, name);
  Json checked = value;
  if (field->kind == Kind::kTexts && value.is_string()) checked = Json::array({value});
  const bool none = field->nullable && value.is_null();
  if (!none && !has_kind(*field, checked)) {
    throw Error(fmt::format("{}: expected {}, got {}", place, expected(*field), json_kind(value)));
  }
  if (field->kind == Kind::kTokenIds) token_ids_from_json(checked, place);
  if (field->kind == Kind::kConstraint && !none) {
    constraint_ = constraint_from(name, checked, where, text);
  } else if (field->kind == Kind::kConstraint && has(name)) {
    constraint_.reset();  // another field's stays
  }
  fields_[std::string(name)] = std::move(checked);
}

std::optional<StructuredOutput> SamplingFields::constraint_from(std::string_view name,
                                                                const Json& value,
                                                                std::string_view where,
                                                                std::string_view text) const {
  for (const Field& other : kFields) {
    if (other.kind != Kind::kConstraint || other.name == name || !has(other.name)) continue;
    throw Error(fmt::format("{}: {} and {} are both given, but an output follows one constraint",
                            where, other.name, name));
  }
  try {
    std::optional<ConstraintField> found =
        constraint_of(Json{{std::string(name), value}}, RawJson(text));
    return found ? std::optional(std::move(found->constraint)) : std::nullopt;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", where, error.what()));
  }
}

void SamplingFields::add(std::string_view name, const Json& value, std::string_view where) {
  const std::string key(name);
  if (!fields_.contains(key)) return set(name, value, where);
  Json merged = fields_[key];
  if (merged.is_array() && value.is_array()) {
    merged.insert(merged.end(), value.begin(), value.end());
  } else if (merged.is_array()) {
    merged.push_back(value);
  } else if (merged.is_object()) {
    merged.update(value);
  } else {
    merged = value;
  }
  set(name, merged, where);
}

SamplingParams SamplingFields::apply(SamplingParams defaults) const {
  for (const auto& [name, value] : fields_.items()) {
    const Field& field = *find_field(name);
    field.access.store(defaults, value);
    if (field.kind == Kind::kConstraint) defaults.structured_output = constraint_;
  }
  return defaults;
}

void SamplingFields::validate() const {
  SamplingParams params;
  // A limit that was not given must not contradict a minimum that was.
  params.max_tokens.reset();
  apply(params).validate();
}

bool SamplingFields::is_field(std::string_view name) {
  return find_field(name) != nullptr;
}

std::vector<std::string> SamplingFields::names() {
  std::vector<std::string> names;
  for (const Field& field : kFields) names.emplace_back(field.name);
  return names;
}

void add_sampling_options(CLI::App& app, SamplingFields& fields,
                          const std::vector<std::string_view>& except) {
  const std::string group =
      "Sampling (defaults: the model's generation_config.json, else as shown)";
  for (const Field& field : kFields) {
    if (field.kind == Kind::kConstraint) continue;
    if (std::find(except.begin(), except.end(), field.name) != except.end()) continue;
    const std::string option = dashed(field.name);
    const std::string help = fmt::format("{} [{}]", field.help, shown_default(field));
    if (field.kind == Kind::kBoolean) {
      add_switch(
          app, option.substr(2), is_on_by_default(field),
          [&fields, &field, option](bool value) { fields.set(field.name, value, option); }, help,
          group);
      continue;
    }
    add_repeatable(app, {option, std::string(field.placeholder), help, group},
                   [&fields, &field, option](const std::string& text) {
                     const Json value = value_from_option(field, text, option);
                     try {
                       fields.add(field.name, value, option);
                     } catch (const Error& error) {
                       throw UsageError(error.what());
                     }
                   });
  }
}

}  // namespace quire::cli
