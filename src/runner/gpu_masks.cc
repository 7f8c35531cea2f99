#include "runner/gpu_masks.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/no_token.h"
#include "quire/error.h"
#include "runner/batch_builder.h"

namespace quire {
namespace {

size_t words_of(int64_t vocab) {
  return static_cast<size_t>(ceil_div(vocab, 32));
}

}  // namespace

bool StepMasks::claim() {
  if (rows.empty()) return false;
  Progress expected = Progress::kNotClaimed;
  return progress_.compare_exchange_strong(expected, Progress::kClaimed);
}

void StepMasks::set(Progress progress) {
  progress_.store(progress);
  progress_.notify_all();
}

void StepMasks::tell(ThreadPool* pool) {
  if (pool == nullptr) {
    for (Row& row : rows) tell(row);
  } else {
    pool->parallel_for(std::ssize(rows),
                       [this](int64_t i, int) { tell(rows[static_cast<size_t>(i)]); });
  }
  set(Progress::kTold);
}

void StepMasks::tell(Row& row) const {
  if (row.mask == nullptr || first_ids[row.row] == ops::kNoToken) return;
  if (row.mask->take(first_ids[row.row]) || ids[row.row] == ops::kNoToken) return;
  row.mask->take(ids[row.row]);
}

void StepMasks::give_up() {
  set(Progress::kGivenUp);
}

void StepMasks::wait_until_told() {
  if (rows.empty()) return;
  progress_.wait(Progress::kClaimed);
  if (progress_ == Progress::kGivenUp) {
    throw Error("A step of constrained requests failed on the GPU.");
  }
}

struct GpuMasks::Arrays {
  int32_t* rows = nullptr;
  int32_t* rows_in_time = nullptr;
  uint32_t* masks = nullptr;  // up to two a row
  size_t masks_begin = 0;     // bytes before them
  size_t bytes = 0;
};

GpuMasks::Arrays GpuMasks::lay_out(std::byte* base, int64_t max_rows, int64_t vocab) {
  ArrayLayout layout(base);
  Arrays arrays;
  arrays.rows = layout.take<int32_t>(max_rows);
  arrays.rows_in_time = layout.take<int32_t>(max_rows);
  arrays.masks_begin = layout.used();
  arrays.masks = layout.take<uint32_t>(2 * max_rows * static_cast<int64_t>(words_of(vocab)));
  arrays.bytes = layout.used();
  return arrays;
}

size_t GpuMasks::bytes(int64_t max_rows, int64_t vocab) {
  return lay_out(nullptr, max_rows, vocab).bytes;
}

GpuMasks::GpuMasks(DeviceLibrary& library, const Device& device, int64_t max_rows, int64_t vocab)
    : max_rows_(max_rows),
      vocab_(vocab),
      copies_(library.make_stream(device.index, nullptr)),
      pinned_(library.allocate_pinned(bytes(max_rows, vocab))),
      device_(bytes(max_rows, vocab), device) {}

UploadedMasks GpuMasks::upload(ThreadPool& pool, std::span<const StepMasks::Row> rows,
                               int64_t num_rows) {
  check(num_rows <= max_rows_, "a step's masks fit where the plan put them");
  const Arrays host = lay_out(pinned_->data(), max_rows_, vocab_);
  const size_t words = words_of(vocab_);
  std::fill_n(host.rows, num_rows, -1);
  std::fill_n(host.rows_in_time, num_rows, -1);
  // The narrower masks lie behind all others.
  std::atomic<bool> has_narrower = false;
  const auto put = [&](int32_t* which, size_t row, std::span<const uint32_t> mask, size_t at) {
    check(mask.size() == words, "a mask has a bit for each token");
    std::ranges::copy(mask, host.masks + at * words);
    which[row] = static_cast<int32_t>(at);
  };
  pool.parallel_for(std::ssize(rows), [&](int64_t task, int) {
    const auto at = static_cast<size_t>(task);
    const StepMasks::Row& row = rows[at];
    if (row.mask == nullptr) return;
    put(host.rows, row.row, row.mask->allowed(), at);
    const std::span<const uint32_t> in_time = row.mask->allowed_in_time();
    if (in_time.empty()) return;
    put(host.rows_in_time, row.row, in_time, rows.size() + at);
    has_narrower = true;
  });
  const size_t num_masks = has_narrower ? 2 * rows.size() : rows.size();
  copies_->copy_to_device(device_.data(), pinned_->data(),
                          host.masks_begin + num_masks * words * sizeof(uint32_t));
  copies_->synchronize();
  const Arrays there = lay_out(device_.data(), max_rows_, vocab_);
  return {.rows = there.rows,
          .rows_in_time = has_narrower ? there.rows_in_time : nullptr,
          .masks = there.masks};
}

}  // namespace quire
