#include "loader/rope_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "loader/model_limits.h"
#include "quire/error.h"

namespace quire {

int64_t RopeConfig::rotary_dim(int64_t head_dim) const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
}

int64_t RopeConfig::min_rotary_dim() const {
  // Dynamic NTK's exponent is dim / (dim - 2).
  return type == RopeType::kDynamicNtk ? 4 : 2;
}

bool RopeConfig::can_rotate(int64_t head_dim) const {
  const int64_t dim = rotary_dim(head_dim);
  return dim >= min_rotary_dim() && dim % 2 == 0;
}

namespace loader_internal {
namespace {

// The keys that one RoPE type understands beyond those every type has.
struct TypeFields {
  const char* name;
  RopeType type;
  std::set<std::string> fields;
};

const std::array<TypeFields, 7>& type_table() {
  static const std::set<std::string> longrope = {"factor", "attention_factor", "short_factor",
                                                 "long_factor"};
  static const std::array<TypeFields, 7> table = {{
      {"default", RopeType::kDefault, {}},
      {"linear", RopeType::kLinear, {"factor"}},
      {"dynamic", RopeType::kDynamicNtk, {"factor"}},
      {"yarn",
       RopeType::kYarn,
       {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
        "truncate"}},
      {"llama3", RopeType::kLlama3, {"factor", "low_freq_factor", "high_freq_factor"}},
      {"longrope", RopeType::kLongRope, longrope},
      {"su", RopeType::kLongRope, longrope},  // as the first Phi-3 models have it
  }};
  return table;
}

// "finetuned" is how YaRN's authors marked their own models; it changes nothing.
constexpr std::array kCommonFields = {
    "rope_type", "type", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings",
    "finetuned"};
constexpr std::array kLayerTypes = {"full_attention", "sliding_attention"};

const TypeFields& find_type(const JsonFields& rope) {
  const std::optional<std::string> old_name = rope.string("type");
  const std::optional<std::string> name = rope.string("rope_type");
  if (name && old_name && *name != *old_name) {
    rope.fail_value("type", fmt::format("the same as rope_type, \"{}\"", *name));
  }
  const std::string wanted = name.value_or(old_name.value_or("default"));
  std::vector<std::string> known;
  for (const TypeFields& entry : type_table()) {
    if (entry.name == wanted) return entry;
    known.emplace_back(entry.name);
  }
  rope.fail_value(name ? "rope_type" : "type",
                  fmt::format("a RoPE type that is supported: {}", fmt::join(known, ", ")));
}

void check_known_fields(const JsonFields& rope, const TypeFields& type) {
  for (const std::string& key : rope.names()) {
    const bool common =
        std::find(kCommonFields.begin(), kCommonFields.end(), key) != kCommonFields.end();
    if (rope.has(key.c_str()) && !common && !type.fields.contains(key)) {
      rope.fail_value(key.c_str(),
                      fmt::format("no such field for the RoPE type \"{}\"", type.name));
    }
  }
}

// A field that stands in the RoPE object or at the top of the config.
double number_of_either(const JsonFields& config, const JsonFields* rope, const char* field,
                        double min, double max, double fallback) {
  const std::optional<double> outer = config.number(field, min, max);
  const std::optional<double> inner = rope ? rope->number(field, min, max) : std::nullopt;
  if (outer && inner && *outer != *inner) {
    rope->fail_value(field, fmt::format("the same as {}, {}", config.name_of(field), *outer));
  }
  return inner.value_or(outer.value_or(fallback));
}

double required_factor(const JsonFields& rope, const RopeConfig& result, int64_t max_positions) {
  if (const std::optional<double> factor = rope.number("factor", 1.0, kMaxFactor)) return *factor;
  const double ratio = static_cast<double>(max_positions) /
                       static_cast<double>(result.original_max_position_embeddings);
  // transformers: a YaRN factor of null is how much longer the model is than the original.
  if (result.type == RopeType::kYarn && rope.mentions("factor") && ratio >= 1.0) return ratio;
  if (result.type == RopeType::kLongRope) return std::max(1.0, ratio);
  rope.fail("factor", fmt::format("is missing; expected a number from 1 to {:g}", kMaxFactor));
}

int64_t original_positions(const JsonFields& config, const JsonFields& rope, RopeType type,
                           int64_t max_positions) {
  constexpr const char* kField = "original_max_position_embeddings";
  // LongRoPE divides by its logarithm.
  const int64_t least = type == RopeType::kLongRope ? 2 : 1;
  const std::optional<int64_t> outer = config.integer(kField, least, kMaxPositions);
  const std::optional<int64_t> inner = rope.integer(kField, least, kMaxPositions);
  if (type != RopeType::kYarn && type != RopeType::kLlama3 && type != RopeType::kLongRope) {
    if (inner && *inner != max_positions) {
      rope.fail_value(kField,
                      fmt::format("none, or max_position_embeddings ({}), which this RoPE type "
                                  "counts from",
                                  max_positions));
    }
    return max_positions;
  }
  if (outer && inner && *outer != *inner) {
    rope.fail_value(kField, fmt::format("the same as {}, {}", config.name_of(kField), *outer));
  }
  if (type == RopeType::kLongRope && !inner && !outer) {
    config.fail(kField,
                "is missing; expected the length that the model was trained with, which "
                "LongRoPE counts from");
  }
  return inner.value_or(outer.value_or(max_positions));
}

void parse_yarn(const JsonFields& rope, RopeConfig& result) {
  result.attention_factor = rope.number("attention_factor", kTiny, kMaxFactor);
  result.beta_fast = rope.number("beta_fast", kTiny, kMaxFactor).value_or(result.beta_fast);
  result.beta_slow = rope.number("beta_slow", kTiny, kMaxFactor).value_or(result.beta_slow);
  if (result.beta_fast < result.beta_slow) {
    rope.fail("beta_fast",
              fmt::format("is {}, below beta_slow, {}", result.beta_fast, result.beta_slow));
  }
  // transformers: 0 counts as not given.
  const auto mscale = [&](const char* field) {
    const std::optional<double> value = rope.number(field, 0.0, kMaxFactor);
    return value == 0.0 ? std::nullopt : value;
  };
  result.mscale = mscale("mscale");
  result.mscale_all_dim = mscale("mscale_all_dim");
  result.truncate = rope.boolean("truncate").value_or(true);
}

void parse_llama3(const JsonFields& rope, RopeConfig& result) {
  const auto required = [&](const char* field) {
    const std::optional<double> value = rope.number(field, kTiny, kMaxFactor);
    if (!value) rope.fail(field, "is missing; expected a number above 0");
    return *value;
  };
  result.low_freq_factor = required("low_freq_factor");
  result.high_freq_factor = required("high_freq_factor");
  if (result.high_freq_factor <= result.low_freq_factor) {
    rope.fail("high_freq_factor", fmt::format("is {}; expected more than low_freq_factor, {}",
                                              result.high_freq_factor, result.low_freq_factor));
  }
}

void parse_longrope(const JsonFields& rope, int64_t head_dim, RopeConfig& result) {
  result.attention_factor = rope.number("attention_factor", kTiny, kMaxFactor);
  const auto num_frequencies = static_cast<size_t>(result.rotary_dim(head_dim) / 2);
  const auto factors = [&](const char* field) {
    const auto values = rope.numbers(field, kTiny, kMaxFactor);
    if (!values) rope.fail(field, "is missing; expected a list of numbers");
    if (values->size() != num_frequencies) {
      rope.fail(field,
                fmt::format("has {} numbers; expected {}, one for each pair of elements of a "
                            "head that is rotated",
                            values->size(), num_frequencies));
    }
    return *values;
  };
  result.short_factor = factors("short_factor");
  result.long_factor = factors("long_factor");
}

void check_rotary_dim(const JsonFields& config, const RopeConfig& rope, int64_t head_dim) {
  const int64_t dim = rope.rotary_dim(head_dim);
  if (!rope.can_rotate(head_dim)) {
    config.fail(
        "partial_rotary_factor",
        fmt::format("is {}, which rotates {} of the {} elements of a head; expected an even "
                    "number of at least {}",
                    rope.partial_rotary_factor, dim, head_dim, rope.min_rotary_dim()));
  }
}

// `rope`: one object of RoPE fields, or none.
RopeConfig parse_one(const JsonFields& config, const JsonFields* rope, int64_t head_dim,
                     int64_t max_positions) {
  RopeConfig result;
  result.theta = number_of_either(config, rope, "rope_theta", 1.0 + kTiny, kMaxTheta, result.theta);
  result.partial_rotary_factor =
      number_of_either(config, rope, "partial_rotary_factor", kTiny, 1.0, 1.0);
  result.original_max_position_embeddings = max_positions;
  if (rope != nullptr) {
    const TypeFields& type = find_type(*rope);
    check_known_fields(*rope, type);
    result.type = type.type;
    result.original_max_position_embeddings =
        original_positions(config, *rope, result.type, max_positions);
    if (result.type != RopeType::kDefault) {
      result.factor = required_factor(*rope, result, max_positions);
    }
    if (result.type == RopeType::kYarn) parse_yarn(*rope, result);
    if (result.type == RopeType::kLlama3) parse_llama3(*rope, result);
    if (result.type == RopeType::kLongRope) parse_longrope(*rope, head_dim, result);
  }
  check_rotary_dim(config, result, head_dim);
  return result;
}

// The newer spelling may nest one object for each type of layer; quire has one RoPE for all layers.
RopeConfig parse_object(const JsonFields& config, const JsonFields& rope, int64_t head_dim,
                        int64_t max_positions) {
  std::optional<RopeConfig> common;
  for (const char* layer_type : kLayerTypes) {
    if (!rope.mentions(layer_type)) continue;
    const std::optional<JsonFields> nested = rope.object(layer_type);
    if (!nested) rope.fail(layer_type, "is null; layers without RoPE are not supported");
    const RopeConfig one = parse_one(config, &*nested, head_dim, max_positions);
    if (common && !(*common == one)) {
      rope.fail(
          layer_type,
          fmt::format("differs from {}; a RoPE of its own for each type of layer is not supported",
                      rope.name_of(kLayerTypes[0])));
    }
    common = one;
  }
  if (!common) return parse_one(config, &rope, head_dim, max_positions);
  for (const std::string& key : rope.names()) {
    if (std::find(kLayerTypes.begin(), kLayerTypes.end(), key) == kLayerTypes.end()) {
      rope.fail_value(key.c_str(), "only full_attention and sliding_attention where one is given");
    }
  }
  return *common;
}

}  // namespace

RopeConfig parse_rope_config(const JsonFields& config, int64_t head_dim,
                             int64_t max_position_embeddings) {
  std::optional<RopeConfig> result;
  for (const char* field : {"rope_scaling", "rope_parameters"}) {
    const std::optional<JsonFields> rope = config.object(field);
    if (!rope || rope->names().empty()) continue;
    const RopeConfig one = parse_object(config, *rope, head_dim, max_position_embeddings);
    if (result && !(*result == one)) {
      config.fail(field,
                  "says otherwise than rope_scaling; expected one of the two, or the same in both");
    }
    result = one;
  }
  return result ? *result : parse_one(config, nullptr, head_dim, max_position_embeddings);
}

}  // namespace loader_internal
}  // namespace quire
