#pragma once
// JSON Schema's "format": the texts that each names.
//
// Thread safety: free functions.
#include <cstdint>
#include <string>
#include <string_view>

namespace quire::grammar {

struct Format {
  enum class Kind {
    kEnforced,
    kUnknown,  // no format of JSON Schema's: an annotation
    kRefused   // one of JSON Schema's that is not enforced
  };
  Kind kind = Kind::kUnknown;
  std::string pattern{};  // the whole text
  uint64_t max_length = UINT64_MAX;
};

Format find_format(std::string_view name);

}  // namespace quire::grammar
