#pragma once
// Cuts work over rows into tasks that are worth handing to a thread.
#include <algorithm>
#include <cstdint>

#include "base/ceil_div.h"
#include "core/stream.h"

namespace quire::ops {

// Elements of a task: about 10 microseconds of elementwise work, so that a loop over one row, as in
// a decode step, stays on the calling thread and costs no synchronisation.
inline constexpr int64_t kTaskElements = 16 << 10;

// body(row) for each row in [0, rows) of `columns` elements.
template <typename Body>
void for_each_row(Stream& stream, int64_t rows, int64_t columns, const Body& body) {
  const int64_t rows_per_task = std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, columns));
  const int64_t tasks = ceil_div(rows, rows_per_task);
  stream.pool().parallel_for(tasks, [&](int64_t task, int) {
    const int64_t end = std::min(rows, (task + 1) * rows_per_task);
    for (int64_t row = task * rows_per_task; row < end; ++row) body(row);
  });
}

}  // namespace quire::ops
