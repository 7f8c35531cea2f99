#include "loader/quantization_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "loader/quantization_methods.h"
#include "quire/error.h"

namespace quire::loader_internal {
namespace {

// Each layer's name is matched with one after the other.
constexpr size_t kMaxRules = 2000;

struct Method {
  std::string_view name;  // in quant_method
  QuantizationConfig (*read)(const JsonFields& quantization);
};

constexpr std::array<Method, 4> kMethods{{{"gptq", read_gptq},
                                          {"awq", read_awq},
                                          {"compressed-tensors", read_compressed_tensors},
                                          {"fp8", read_fp8}}};

std::string known_methods() {
  std::string names;
  for (const Method& method : kMethods) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", method.name);
  }
  return names;
}

}  // namespace

void expect_string(const JsonFields& fields, const char* field, std::string_view expected) {
  if (fields.string(field).value_or(std::string(expected)) == expected) return;
  fields.fail_value(field, fmt::format("\"{}\"", expected));
}

void expect_missing(const JsonFields& fields, const char* field) {
  if (fields.has(field)) fields.fail_value(field, "null");
}

int64_t read_group_size(const JsonFields& fields, const char* field) {
  constexpr int64_t kMaxGroup = int64_t{1} << 24;
  const std::optional<int64_t> size = fields.integer(field, -1, kMaxGroup);
  if (!size) fields.fail(field, "is missing; expected a number of inputs, or -1 for all");
  if (*size == 0) fields.fail_value(field, "a number of inputs, or -1 for all");
  return std::max<int64_t>(*size, 0);
}

LayerPattern read_target(const JsonFields& fields, const char* field, const std::string& text) {
  constexpr std::string_view kRegex = "re:";
  if (text.starts_with(kRegex)) {
    return LayerPattern::regex(
        text.substr(kRegex.size()),
        fmt::format("{}: the field {}", fields.file(), fields.name_of(field)));
  }
  const bool is_class = text == "Linear" || text == "Embedding";
  return is_class ? LayerPattern::layer_class(text) : LayerPattern::name(text);
}

void check_rules(const JsonFields& quantization, const QuantizationConfig& config) {
  if (config.rules.size() <= kMaxRules) return;
  throw Error(
      fmt::format("{}: quantization_config has {} patterns of layers; quire reads up to "
                  "{}.",
                  quantization.file(), config.rules.size(), kMaxRules));
}

QuantizationConfig parse_quantization_config(const JsonFields& quantization) {
  const std::optional<std::string> name = quantization.string("quant_method");
  if (!name) {
    quantization.fail("quant_method", fmt::format("is missing; quire reads {}", known_methods()));
  }
  const auto method = std::find_if(kMethods.begin(), kMethods.end(),
                                   [&](const Method& each) { return each.name == *name; });
  if (method == kMethods.end()) {
    quantization.fail_value("quant_method", fmt::format("one of {}", known_methods()));
  }
  QuantizationConfig config = method->read(quantization);
  check_rules(quantization, config);
  return config;
}

}  // namespace quire::loader_internal
