#pragma once
// For tests of generated JSON.
//
// Thread safety: free functions.
#include <cstdint>
#include <string_view>

#include "grammar/tokens/language.h"

namespace quire::grammar {

// Whether a text can be written byte by byte, and is then whole.
inline bool generates(const LanguagePtr& language, std::string_view text) {
  const auto matcher = language->begin();
  for (const char c : text) {
    if (!matcher->push(static_cast<uint8_t>(c))) return false;
  }
  return matcher->can_end();
}

}  // namespace quire::grammar
