#pragma once
// A part of a text.
//
// Thread safety: a plain value.
#include <cstddef>

namespace quire {

// The bytes [begin, end) of a text; end > begin.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;

  bool operator==(const TextSpan&) const = default;
};

}  // namespace quire
