#pragma once
// The value of --speculative-config. Thread safety: a free function.
#include <string>

#include "quire/speculative_config.h"

namespace quire::cli {

// A JSON object of SpeculativeConfig's fields. Throws UsageError: no such object, no method, a
// field that there is none of, or a value of another type. Ranges are the engine's to check.
SpeculativeConfig parse_speculative_config(const std::string& text);

}  // namespace quire::cli
