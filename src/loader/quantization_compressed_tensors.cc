// compressed-tensors' quantization_config, as llm-compressor writes it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loader/quantization_methods.h"

namespace quire::loader_internal {
namespace {

constexpr int64_t kMaxBlock = 1 << 20;
constexpr size_t kMaxMatches = 1'000'000;

struct Format {
  std::string_view name;
  WeightLayout layout;
  std::string_view type;  // of the weights' numbers
};

// A byte for a number is called naive where none of the package's other formats has the strategy.
constexpr std::array<Format, 5> kFormats{{{"pack-quantized", WeightLayout::kPacked, "int"},
                                          {"int-quantized", WeightLayout::kInt8, "int"},
                                          {"float-quantized", WeightLayout::kFloat8, "float"},
                                          {"naive-quantized", WeightLayout::kInt8, "int"},
                                          {"naive-quantized", WeightLayout::kFloat8, "float"}}};

constexpr const char* kFormatNames =
    "\"pack-quantized\", \"int-quantized\", \"float-quantized\" or \"naive-quantized\"";

std::string type_of(const JsonFields& weights) {
  return weights.string("type").value_or("int");
}

// For messages: "int", or "int" or "float" where formats share the name.
std::string types_of(std::string_view format) {
  std::string types;
  for (const Format& each : kFormats) {
    if (each.name != format) continue;
    types += fmt::format("{}\"{}\"", types.empty() ? "" : " or ", each.type);
  }
  return types;
}

// A group's, else that of all groups. Of formats with one name the one for the weights' type.
const Format& read_format(const JsonFields& quantization, const JsonFields& group,
                          const JsonFields& weights) {
  const JsonFields& fields = group.has("format") ? group : quantization;
  const std::optional<std::string> common = quantization.string("format");
  const std::optional<std::string> name = group.has("format") ? group.string("format") : common;
  if (!name) fields.fail("format", fmt::format("is missing; quire reads {}", kFormatNames));
  const auto has_name = [&](const Format& each) { return each.name == *name; };
  const auto format = std::find_if(kFormats.begin(), kFormats.end(), has_name);
  if (format == kFormats.end()) fields.fail_value("format", kFormatNames);
  const auto other = std::find_if(std::next(format), kFormats.end(), has_name);
  return other != kFormats.end() && other->type == type_of(weights) ? *other : *format;
}

void read_bits(const JsonFields& weights, const Format& format, WeightScheme& scheme) {
  const int64_t bits = weights.required_integer("num_bits", 1, 64);
  const bool is_float = format.layout == WeightLayout::kFloat8;
  if (bits != 8 && (is_float || bits != 4)) {
    weights.fail_value("num_bits", is_float ? "8" : "4 or 8");
  }
  // int-quantized has a byte for a number of whatever bits.
  scheme.bits = static_cast<int>(bits);
  const std::string type = type_of(weights);
  if (type != format.type) {
    weights.fail("type", fmt::format("is \"{}\"; expected {} of the format {}", type,
                                     types_of(format.name), format.name));
  }
}

std::string read_strategy(const JsonFields& weights) {
  constexpr std::array<std::string_view, 4> kStrategies{"tensor", "channel", "group", "block"};
  if (const auto strategy = weights.string("strategy")) {
    if (std::ranges::find(kStrategies, *strategy) == kStrategies.end()) {
      weights.fail_value("strategy", "\"tensor\", \"channel\", \"group\" or \"block\"");
    }
    return *strategy;
  }
  // As compressed-tensors infers it.
  if (!weights.has("group_size")) return "tensor";
  return read_group_size(weights, "group_size") == 0 ? "channel" : "group";
}

void read_granularity(const JsonFields& weights, WeightScheme& scheme) {
  const std::string strategy = read_strategy(weights);
  if (strategy != "block") expect_missing(weights, "block_structure");
  if (strategy == "group") {
    scheme.group_inputs = read_group_size(weights, "group_size");
    if (scheme.group_inputs == 0) weights.fail_value("group_size", "a number of inputs");
    return;
  }
  if (weights.has("group_size") && read_group_size(weights, "group_size") != 0) {
    weights.fail_value("group_size", "null, as the strategy is not \"group\"");
  }
  if (strategy == "channel") return;
  if (strategy == "tensor") {
    scheme.group_outputs = 0;
    return;
  }
  const auto block = weights.integers("block_structure", 1, kMaxBlock);
  if (!block || block->size() != 2) {
    weights.fail("block_structure", "is missing or not two numbers; expected such as [128, 128]");
  }
  scheme.group_outputs = block->front();
  scheme.group_inputs = block->back();
}

// "group" comes with the group of each input; "weight" and "static" leave nothing in the file.
bool read_act_order(const JsonFields& weights) {
  const nlohmann::ordered_json* value = weights.find("actorder");
  if (value == nullptr) return false;
  if (value->is_boolean()) return weights.boolean("actorder").value_or(false);
  const std::string order = weights.string("actorder").value_or("");
  if (order == "group" || order == "dynamic") return true;
  if (order != "weight" && order != "static") {
    weights.fail_value("actorder", "\"group\", \"weight\", \"dynamic\" or \"static\"");
  }
  return false;
}

WeightScheme read_weights(const JsonFields& weights, const Format& format) {
  WeightScheme scheme{.name = fmt::format("compressed-tensors {}", format.name),
                      .layout = format.layout};
  read_bits(weights, format, scheme);
  read_granularity(weights, scheme);
  scheme.symmetric = weights.boolean("symmetric").value_or(true);
  if (weights.boolean("dynamic").value_or(false)) weights.fail_value("dynamic", "false");
  scheme.act_order = read_act_order(weights);
  const bool is_packed = format.layout == WeightLayout::kPacked;
  if (scheme.act_order && !(is_packed && scheme.group_inputs != 0)) {
    weights.fail_value("actorder", "null, as the format is not pack-quantized with groups");
  }
  if (!scheme.symmetric && format.layout == WeightLayout::kFloat8) {
    weights.fail_value("symmetric",
                       fmt::format("true, as the format is {} of float8", format.name));
  }
  const bool has_packed_zeros = scheme.group_outputs == 1;
  if (is_packed && !scheme.symmetric && !has_packed_zeros) {
    weights.fail_value("symmetric", "true, as the strategy is neither \"channel\" nor \"group\"");
  }
  return scheme;
}

// What a group says of the layers that it targets; none: they are dense.
std::optional<WeightScheme> read_group(const JsonFields& quantization, const JsonFields& group) {
  const auto weights = group.object("weights");
  if (!weights) return std::nullopt;
  return read_weights(*weights, read_format(quantization, group, *weights));
}

using Targets = std::map<std::string, std::optional<WeightScheme>>;

Targets read_targets(const JsonFields& quantization) {
  const auto groups = quantization.object("config_groups");
  if (!groups || groups->names().empty()) {
    quantization.fail("config_groups", "is missing or empty; expected groups of layers");
  }
  Targets targets;
  for (const std::string& name : groups->names()) {
    const auto group = groups->object(name.c_str());
    if (!group) groups->fail(name.c_str(), "is null; expected an object");
    const auto names = group->strings("targets");
    if (!names) group->fail("targets", "is missing; expected layers such as [\"Linear\"]");
    const std::optional<WeightScheme> scheme = read_group(quantization, *group);
    // Of two groups with one target the later counts.
    for (const std::string& target : *names) targets.insert_or_assign(target, scheme);
  }
  return targets;
}

void add_ignored(const JsonFields& quantization, QuantizationConfig& config) {
  const auto ignored = quantization.strings("ignore");
  if (!ignored) return;
  for (const std::string& text : *ignored) {
    LayerPattern pattern = read_target(quantization, "ignore", text);
    if (pattern == LayerPattern::name(text)) {
      config.layers.emplace(text, std::nullopt);
    } else {
      config.rules.push_back({std::move(pattern), std::nullopt});
    }
  }
}

// Names come before regular expressions, and these before classes.
void add_targets(const JsonFields& quantization, Targets targets, QuantizationConfig& config) {
  check_rules(quantization, config);
  if (targets.size() * config.rules.size() > kMaxMatches) {
    quantization.fail("config_groups",
                      fmt::format("names {} targets, and `ignore` {} patterns; quire compares up "
                                  "to {} pairs of these",
                                  targets.size(), config.rules.size(), kMaxMatches));
  }
  std::vector<LayerRule> classes;
  for (auto& [name, scheme] : targets) {
    const std::string& text = name;
    LayerPattern pattern = read_target(quantization, "config_groups.*.targets", text);
    if (pattern == LayerPattern::layer_class(text)) {
      classes.push_back({std::move(pattern), std::move(scheme)});
    } else if (text.starts_with("re:")) {
      config.rules.push_back({std::move(pattern), std::move(scheme)});
    } else if (std::none_of(config.rules.begin(), config.rules.end(), [&](const LayerRule& rule) {
                 return !rule.scheme && rule.pattern.matches(text);
               })) {
      config.layers.emplace(text, std::move(scheme));
    }
  }
  config.rules.insert(config.rules.end(), classes.begin(), classes.end());
}

void check_status(const JsonFields& quantization) {
  const std::string status = quantization.string("quantization_status").value_or("compressed");
  if (status != "compressed") quantization.fail_value("quantization_status", "\"compressed\"");
}

}  // namespace

QuantizationConfig read_compressed_tensors(const JsonFields& quantization) {
  check_status(quantization);
  if (const auto sparsity = quantization.object("sparsity_config")) {
    expect_string(*sparsity, "format", "dense");
  }
  // Transforms (of SpinQuant, of QuIP) change what a layer computes.
  if (const auto transforms = quantization.object("transform_config");
      transforms && !transforms->names().empty()) {
    quantization.fail_value("transform_config", "null or {}");
  }
  QuantizationConfig config;
  add_ignored(quantization, config);
  add_targets(quantization, read_targets(quantization), config);
  return config;
}

}  // namespace quire::loader_internal
