#pragma once
// JSON Schema's "format": the texts that each names.
//
// Thread safety: free functions.
#include <cstdint>
#include <string>
#include <string_view>

#include "grammar/dfa.h"

namespace quire::grammar {

struct Format {
  enum class Kind {
    kEnforced,
    kUnknown,  // no format of JSON Schema's: an annotation
    kRefused   // one of JSON Schema's that is not enforced
  };
  Kind kind = Kind::kUnknown;
  std::string pattern{};             // the whole text
  uint64_t max_length = UINT64_MAX;  // in characters
  bool is_address = false;           // of mail: what is before its last @ has at most 64 bytes
};

Format find_format(std::string_view name);

// The texts of a format that is enforced, all lengths but max_length checked.
DfaPtr compile_format(const Format& format, Budget& budget);

}  // namespace quire::grammar
