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
          .max_logits = options.most_logits_rows(),
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

StepLoras GpuLoraSlots::place(std::span<const StepSequence> sequences, int64_t num_tokens,
                              DeviceStream& stream, Communicator& comm) {
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
  StepLoras loras = {.row_slots = std::vector<int32_t>(static_cast<size_t>(num_tokens), -1)};
  auto row = loras.row_slots.begin();
  for (const StepSequence& sequence : sequences) {
    const Request& request = *sequence.state.request;
    const int32_t slot = request.lora_id == 0 ? -1 : take(request);
    if (slot >= 0) loras.extras |= adapters_.extras(slot);
    row = std::fill_n(row, sequence.chunk.num_tokens, slot);
  }
  if (copies) comm.barrier();
  return loras;
}

GpuLoraStep GpuLoraSlots::step(const StepArrays& arrays, const StepShape& shape,
                               const LoraExtras& extras) const {
  const auto rows_of = [](const auto& loras, int64_t max_items, int64_t num_rows) {
    return ops::CudaLoraRows{.items = loras.items,
                             .num_items = loras.num_items,
                             .max_items = max_items,
                             .rows = loras.rows,
                             .first_row = 0,
                             .num_rows = num_rows};
  };
  return {adapters_,
          {.tokens = rows_of(arrays.loras, shape.num_lora_items, shape.num_tokens),
           .logits = rows_of(arrays.lora_logits, shape.num_lora_logits_items, shape.num_logits),
           .extras = extras}};
}

GpuLoraStep GpuLoraSlots::logits_step(const ops::CudaLoraRows& logits,
                                      const LoraExtras& extras) const {
  return {adapters_, {.tokens = {}, .logits = logits, .extras = extras}};
}

int64_t lora_item_room(int64_t num_rows, int64_t max_loras) {
  // Each slot, and the rows without one, may have an item that is not full.
  return num_rows / ops::kLoraItemRows + std::min(num_rows, max_loras + 1);
}

void shape_lora_items(const StepLoras& loras, int64_t max_loras, StepShape& shape) {
  if (!loras.any()) return;
  shape.num_lora_items = lora_item_room(shape.num_tokens, max_loras);
  if (loras.extras.output) {
    shape.num_lora_logits_items = lora_item_room(shape.num_logits, max_loras);
  }
}

namespace {

// Of rows 0, 1, ... num_rows - 1, whose slots slot_of(row) says.
template <typename SlotOf>
void fill_items(int64_t num_rows, int64_t room, const SlotOf& slot_of, const LoraRowArrays& to) {
  const std::span rows(to.rows, static_cast<size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::stable_sort(rows, {}, slot_of);
  int32_t num_items = 0;
  const auto end = static_cast<int32_t>(num_rows);
  for (int32_t first = 0; first < end;) {
    const int32_t slot = slot_of(to.rows[first]);
    int32_t count = 1;
    while (count < ops::kLoraItemRows && first + count < end &&
           slot_of(to.rows[first + count]) == slot) {
      ++count;
    }
    check(num_items < room, "a step has room for its items");
    to.items[num_items++] = {slot, first, count, 0};
    first += count;
  }
  *to.num_items = num_items;
}

}  // namespace

void fill_lora_items(std::span<const int32_t> row_slots, const StepShape& shape,
                     const StepArrays& arrays) {
  const auto slot_of = [&](int32_t row) {
    return row < std::ssize(row_slots) ? row_slots[static_cast<size_t>(row)] : -1;
  };
  fill_items(shape.num_tokens, shape.num_lora_items, slot_of, arrays.loras);
  if (shape.num_lora_logits_items == 0) return;
  const auto slot_of_logits = [&](int32_t row) { return slot_of(arrays.logits_rows[row]); };
  fill_items(shape.num_logits, shape.num_lora_logits_items, slot_of_logits, arrays.lora_logits);
}

}  // namespace quire
