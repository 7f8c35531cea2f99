#pragma once
// References between the parts of a schema, resolved as RFC 3986 says.
//
// Thread safety: free functions.
#include <string>
#include <string_view>

namespace quire::grammar {

struct UriReference {
  std::string uri;       // without its fragment
  std::string fragment;  // decoded, without the #
};

// Resolves `reference` against `base` (without a fragment, maybe empty).
UriReference resolve_reference(std::string_view base, std::string_view reference);

// A member's name as part of a JSON pointer that a sentence shows (visible_text.h).
std::string pointer_token(std::string_view name);

}  // namespace quire::grammar
