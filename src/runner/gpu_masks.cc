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

bool StepMasks::take_all() const {
  return std::ranges::all_of(
      rows, [](const Row& row) { return row.mask == nullptr || row.mask->takes_all(); });
}

bool StepMasks::has_refused() const {
  return std::ranges::any_of(rows, [](const Row& row) { return row.has_refused; });
}

void StepMasks::tell(const int32_t* ids, ThreadPool* pool) {
  const auto tell_row = [ids](Row& row) {
    const int32_t id = ids[row.row];
    row.has_refused = row.mask != nullptr && id != ops::kNoToken && !row.mask->take(id);
  };
  if (pool == nullptr) {
    std::ranges::for_each(rows, tell_row);
  } else {
    pool->parallel_for(std::ssize(rows),
                       [&](int64_t i, int) { tell_row(rows[static_cast<size_t>(i)]); });
  }
  set(Progress::kTold);
}

void StepMasks::tell_again(const int32_t* ids) {
  for (Row& row : rows) {
    if (row.has_refused && ids[row.row] != ops::kNoToken) row.mask->take(ids[row.row]);
  }
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
  uint32_t* masks = nullptr;  // up to one a row
  size_t masks_begin = 0;     // bytes before them
  size_t bytes = 0;
};

GpuMasks::Arrays GpuMasks::lay_out(std::byte* base, int64_t max_rows, int64_t vocab) {
  ArrayLayout layout(base);
  Arrays arrays;
  arrays.rows = layout.take<int32_t>(max_rows);
  arrays.masks_begin = layout.used();
  arrays.masks = layout.take<uint32_t>(max_rows * static_cast<int64_t>(words_of(vocab)));
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
                               int64_t num_rows, MaskChoice choice) {
  check(num_rows <= max_rows_, "a step's masks fit where the plan put them");
  const Arrays host = lay_out(pinned_->data(), max_rows_, vocab_);
  const size_t words = words_of(vocab_);
  std::fill_n(host.rows, num_rows, -1);
  pool.parallel_for(std::ssize(rows), [&](int64_t task, int) {
    const auto at = static_cast<size_t>(task);
    const StepMasks::Row& row = rows[at];
    if (row.mask == nullptr || (choice == MaskChoice::kRefused && !row.has_refused)) return;
    const std::span<const uint32_t> mask = row.mask->allowed();
    check(mask.size() == words, "a mask has a bit for each token");
    std::ranges::copy(mask, host.masks + at * words);
    host.rows[row.row] = static_cast<int32_t>(at);
  });
  copies_->copy_to_device(device_.data(), pinned_->data(),
                          host.masks_begin + rows.size() * words * sizeof(uint32_t));
  copies_->synchronize();
  const Arrays there = lay_out(device_.data(), max_rows_, vocab_);
  return {.rows = there.rows, .masks = there.masks};
}

}  // namespace quire
