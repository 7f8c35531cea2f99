#pragma once
// Shows the thread sanitizer memory that is read or written by code compiled without it.
//
// The inner loops of matrix products are (cmake/QuireTargets.cmake), as most of a sanitized test's
// time went into looking at each of their reads of weights. They hold no lock and no atomic, and
// touch nothing but what their caller hands them. So the caller, which is compiled with the
// sanitizer, names that memory before each call: a race of any of it with another thread is still
// found. Without the sanitizer all of this is empty. Thread safety: free functions.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_THREAD__)
#define QUIRE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define QUIRE_THREAD_SANITIZER 1
#endif
#endif

#ifdef QUIRE_THREAD_SANITIZER
// What compilers call for accesses of other sizes than a number's.
extern "C" void __tsan_read_range(const void* begin, std::size_t bytes);
extern "C" void __tsan_write_range(void* begin, std::size_t bytes);
#endif

namespace quire {

// `rows` rows of `bytes` bytes, one every `stride` bytes, are read.
inline void watch_reads([[maybe_unused]] const void* begin, [[maybe_unused]] int64_t bytes,
                        [[maybe_unused]] int64_t rows = 1, [[maybe_unused]] int64_t stride = 0) {
#ifdef QUIRE_THREAD_SANITIZER
  const auto* row = static_cast<const std::byte*>(begin);
  for (; rows > 0; --rows, row += stride) __tsan_read_range(row, static_cast<std::size_t>(bytes));
#endif
}

// The same rows are written.
inline void watch_writes([[maybe_unused]] void* begin, [[maybe_unused]] int64_t bytes,
                         [[maybe_unused]] int64_t rows = 1, [[maybe_unused]] int64_t stride = 0) {
#ifdef QUIRE_THREAD_SANITIZER
  auto* row = static_cast<std::byte*>(begin);
  for (; rows > 0; --rows, row += stride) __tsan_write_range(row, static_cast<std::size_t>(bytes));
#endif
}

// Weights are read, which are many and are written by panels or columns of one: 8 bytes of each 520
// are looked at. That is no divisor of the layouts' powers of two, so no lane of a panel is left
// out.
inline void watch_weights([[maybe_unused]] const void* begin, [[maybe_unused]] int64_t bytes) {
#ifdef QUIRE_THREAD_SANITIZER
  constexpr int64_t kStride = 520;
  const auto* weights = static_cast<const std::byte*>(begin);
  for (int64_t at = 0; at < bytes; at += kStride) {
    __tsan_read_range(weights + at, static_cast<std::size_t>(std::min<int64_t>(8, bytes - at)));
  }
#endif
}

}  // namespace quire
