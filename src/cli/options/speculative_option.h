#pragma once
// The value of --speculative-config. Thread safety: a free function.
#include <string>

#include "quire/speculative_config.h"

namespace quire::cli {

// A JSON object of SpeculativeConfig's fields. Without a method that of its model's name. Throws
// UsageError if it is no object, has neither, an unknown field, or a value of another type. The
// engine checks ranges.
SpeculativeConfig parse_speculative_config(const std::string& text);

}  // namespace quire::cli
