#include "runner/gpu_lora_slots.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace quire {
namespace {

GpuLoraLimits limits_of(const RunnerOptions& options) {
  return {.max_loras = options.max_loras,
          .max_rank = options.max_lora_rank,
          .max_rows = options.max_tokens,
          .dtype = options.model.dtype};
}

}  // namespace

GpuLoraSlots::GpuLoraSlots(const Model& model, const RunnerOptions& options, const Device& device,
                           ThreadPool& pool)
    : adapters_(model.lora_sites(), limits_of(options), device),
      pool_(pool),
      slots_(static_cast<size_t>(options.max_loras)) {}

size_t GpuLoraSlots::bytes(const Model& model, const RunnerOptions& options) {
  return GpuLora::bytes(model.lora_sites(), limits_of(options));
}

GpuLoraSlots::Slot* GpuLoraSlots::find(uint64_t id) {
  const auto slot = std::ranges::find(slots_, id, &Slot::id);
  return slot == slots_.end() ? nullptr : &*slot;
}

int32_t GpuLoraSlots::take(const Request& request) {
  Slot* slot = find(request.lora_id);
  if (slot == nullptr) {
    check(request.lora != nullptr, "a request with an adapter has its weights");
    slot = &*std::ranges::min_element(slots_, {}, &Slot::last_step);
    check(slot->last_step < step_, "a step has no more adapters than there are slots");
    // Not the adapter that was there if this fails half way.
    slot->id = 0;
    adapters_.store(static_cast<int>(slot - slots_.data()), *request.lora, pool_);
    slot->id = request.lora_id;
  }
  slot->last_step = step_;
  return static_cast<int32_t>(slot - slots_.data());
}

std::vector<int32_t> GpuLoraSlots::place(std::span<const StepSequence> sequences,
                                         int64_t num_tokens, DeviceStream& stream,
                                         Communicator& comm) {
  ++step_;
  const bool any = std::ranges::any_of(
      sequences, [](const StepSequence& sequence) { return sequence.state.request->lora_id != 0; });
  if (!any) return {};
  // Those that are there first, so that none of them has to go for another one of this step.
  bool copies = false;
  for (const StepSequence& sequence : sequences) {
    const uint64_t id = sequence.state.request->lora_id;
    if (id == 0) continue;
    Slot* const slot = find(id);
    copies |= slot == nullptr;
    if (slot != nullptr) slot->last_step = step_;
  }
  if (copies) {
    stream.synchronize();
    comm.barrier();
  }
  std::vector<int32_t> row_slots(static_cast<size_t>(num_tokens), -1);
  auto row = row_slots.begin();
  for (const StepSequence& sequence : sequences) {
    const Request& request = *sequence.state.request;
    const int32_t slot = request.lora_id == 0 ? -1 : take(request);
    row = std::fill_n(row, sequence.chunk.num_tokens, slot);
  }
  if (copies) comm.barrier();
  return row_slots;
}

GpuLoraStep GpuLoraSlots::step(const StepArrays& arrays, const StepShape& shape) const {
  return {adapters_,
          {.items = arrays.lora_items,
           .num_items = arrays.num_lora_items,
           .max_items = shape.num_lora_items,
           .rows = arrays.lora_rows,
           .first_row = 0,
           .num_rows = shape.num_tokens}};
}

int64_t lora_item_room(int64_t num_rows, int64_t max_loras) {
  // Each slot, and the rows without one, may have an item that is not full.
  return num_rows / ops::kLoraItemRows + std::min(num_rows, max_loras + 1);
}

void fill_lora_items(std::span<const int32_t> row_slots, const StepShape& shape,
                     const StepArrays& arrays) {
  const auto slot_of = [&](int32_t row) {
    return row < std::ssize(row_slots) ? row_slots[static_cast<size_t>(row)] : -1;
  };
  const std::span rows(arrays.lora_rows, static_cast<size_t>(shape.num_tokens));
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::stable_sort(rows, {}, slot_of);
  int32_t num_items = 0;
  const auto end = static_cast<int32_t>(shape.num_tokens);
  for (int32_t first = 0; first < end;) {
    const int32_t slot = slot_of(arrays.lora_rows[first]);
    int32_t count = 1;
    while (count < ops::kLoraItemRows && first + count < end &&
           slot_of(arrays.lora_rows[first + count]) == slot) {
      ++count;
    }
    check(num_items < shape.num_lora_items, "a step has room for its items");
    arrays.lora_items[num_items++] = {slot, first, count, 0};
    first += count;
  }
  *arrays.num_lora_items = num_items;
}

}  // namespace quire
