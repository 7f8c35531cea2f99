#include "ops/cpu/interleave_words.h"

#include <algorithm>

#include "base/cpu_features.h"
#include "base/watched_memory.h"
#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

// What is asked for ahead stays in the L2 cache beside what is in use.
constexpr int64_t kMostAhead = int64_t{256} << 10;

// Shows what the kernel reads and writes: its stores past the caches are not seen
// (base/watched_memory.h).
void watch([[maybe_unused]] const WordRows& rows) {
#ifdef QUIRE_THREAD_SANITIZER
  constexpr int64_t kWord = sizeof(uint32_t);
  watch_reads(rows.in, rows.words * kWord, rows.rows, rows.row_bytes);
  auto* group = static_cast<std::byte*>(rows.out);
  for (int64_t first = 0; first < rows.words; first += rows.group_words) {
    const int64_t steps = std::min(rows.group_words, rows.words - first);
    watch_writes(group, rows.rows * kWord, steps, kPanelLanes * kWord);
    group += rows.group_bytes;
  }
#endif
}

}  // namespace

WordRows word_rows(const void* in, int64_t row_bytes, int64_t num_rows, int64_t words, void* out,
                   int64_t rows_behind) {
  const int64_t ahead = std::min<int64_t>(rows_behind, kPanelLanes) * row_bytes;
  const bool is_asked_for = ahead > 0 && ahead <= kMostAhead;
  return {.in = in,
          .row_bytes = row_bytes,
          .rows = static_cast<int>(num_rows),
          .words = words,
          .group_words = words,
          .group_bytes = 0,
          .flip = 0,
          .orders_halves = false,
          .out = out,
          .next = is_asked_for ? static_cast<const std::byte*>(in) + num_rows * row_bytes : nullptr,
          .next_bytes = is_asked_for ? ahead : 0};
}

void interleave_words(const WordRows& rows) {
  watch(rows);
  kernels_for(best_isa()).interleave(rows);
}

}  // namespace quire::ops
