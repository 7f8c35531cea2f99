#pragma once
// The methods that a quantization_config may name, and helpers of their readers.
//
// Each reader throws Error naming the field that it does not support. Thread safety: free functions
// without state.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loader/json_fields.h"
#include "loader/quantization_config.h"

namespace quire::loader_internal {

QuantizationConfig read_gptq(const JsonFields& quantization);
QuantizationConfig read_awq(const JsonFields& quantization);
QuantizationConfig read_compressed_tensors(const JsonFields& quantization);
QuantizationConfig read_fp8(const JsonFields& quantization);

// Throws unless the field is missing or has this value.
void expect_string(const JsonFields& fields, const char* field, std::string_view expected);
void expect_missing(const JsonFields& fields, const char* field);

// A field group_size: inputs that share a scale; -1 means all, which is 0.
int64_t read_group_size(const JsonFields& fields, const char* field);

// Throws where there are more patterns than are matched in a short time.
void check_rules(const JsonFields& quantization, const QuantizationConfig& config);

// "re:..." means a regular expression, else `text` is a layer's name or a class.
LayerPattern read_target(const JsonFields& fields, const char* field, const std::string& text);

}  // namespace quire::loader_internal
