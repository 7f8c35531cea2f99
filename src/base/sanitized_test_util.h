#pragma once
// Whether a test runs under a sanitizer, where it takes about ten times as long. Release builds
// show that numbers are right, over all of them; a sanitizer shows that memory and threads are used
// rightly, which takes each path a few times.

namespace quire {

#ifdef QUIRE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace quire
