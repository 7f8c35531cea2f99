#pragma once
// Whether a test runs under a sanitizer, where it takes about ten times as long. Release builds
// check all numbers; under a sanitizer only the use of memory and threads is checked, for which a
// few rounds of each path are enough.

namespace quire {

#ifdef QUIRE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace quire
