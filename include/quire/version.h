#pragma once
// The version of quire. Thread safety: constants.
#include <string_view>

namespace quire {

// "0.1.0".
std::string_view version();

}  // namespace quire
