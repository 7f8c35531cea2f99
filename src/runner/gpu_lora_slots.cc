#include "runner/gpu_lora_slots.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "models/counted_model.h"

namespace quire {
namespace {

GpuLoraLimits limits_of(const RunnerOptions& options) {
  return {.max_loras = options.max_loras,
          .max_rank = options.max_lora_rank,
          .copy_bytes = options.lora_copy_bytes,
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

GpuLoraStep GpuLoraSlots::step(const StepArrays& arrays, const StepShape& shape, LoraGroups groups,
                               const LoraExtras& extras) const {
  const auto rows_of = [](const auto& loras, int64_t max_items, int64_t num_rows) {
    return ops::CudaLoraRows{.items = loras.items,
                             .num_items = loras.num_items,
                             .max_items = max_items,
                             .rows = loras.rows,
                             .first_row = 0,
                             .num_rows = num_rows};
  };
  const auto order_of = [](std::vector<LoraRowGroup> of, const LoraOrderArrays& order) {
    return LoraRowOrder{.groups = std::move(of), .rows = order.rows, .wide_rows = order.wide_rows};
  };
  return {adapters_,
          {.tokens = rows_of(arrays.loras, shape.num_lora_items, shape.num_tokens),
           .logits = rows_of(arrays.lora_logits, shape.num_lora_logits_items, shape.num_logits),
           .token_order = order_of(std::move(groups.tokens), arrays.lora_order),
           .logits_order = order_of(std::move(groups.logits), arrays.lora_logits_order),
           .extras = extras}};
}

GpuLoraStep GpuLoraSlots::logits_step(const ops::CudaLoraRows& logits, int32_t slot,
                                      const LoraExtras& extras) const {
  LoraRowOrder order;
  order.groups = {{.slot = slot, .count = logits.num_rows, .is_run = true}};
  return {adapters_,
          {.tokens = {}, .logits = logits, .logits_order = std::move(order), .extras = extras}};
}

int64_t lora_item_room(int64_t num_rows, int64_t max_loras) {
  // Each slot, and the rows without one, may have an item that is not full.
  return num_rows / ops::kLoraItemRows + std::min(num_rows, max_loras + 1);
}

void shape_lora_items(const StepLoras& loras, int64_t max_loras, StepShape& shape) {
  if (!loras.any()) return;
  shape.orders_lora_rows = loras.extras.copies;
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

// The same, as groups.
template <typename SlotOf>
std::vector<LoraRowGroup> fill_order(int64_t num_rows, const SlotOf& slot_of,
                                     const LoraOrderArrays& to) {
  std::vector<LoraRowGroup> groups;
  for (int64_t block = 0; block < num_rows; block += LoraRowOrder::kBlockRows) {
    const int64_t end = std::min(num_rows, block + LoraRowOrder::kBlockRows);
    const std::span rows(to.rows + block, static_cast<size_t>(end - block));
    std::iota(rows.begin(), rows.end(), static_cast<int32_t>(block));
    std::ranges::stable_sort(rows, {}, slot_of);
    for (auto first = rows.begin(); first != rows.end();) {
      const int32_t slot = slot_of(*first);
      const auto last =
          std::find_if(first, rows.end(), [&](int32_t row) { return slot_of(row) != slot; });
      const int64_t count = last - first;
      groups.push_back({.slot = slot,
                        .first_row = *first,
                        .begin = block + (first - rows.begin()),
                        .count = count,
                        .is_run = *(last - 1) - *first + 1 == count});
      first = last;
    }
    for (int32_t& row : rows) row -= static_cast<int32_t>(block);
    std::ranges::copy(rows, to.wide_rows + block);
  }
  return groups;
}

}  // namespace

LoraGroups fill_lora_order(std::span<const int32_t> row_slots, const StepShape& shape,
                           const StepArrays& arrays) {
  const auto slot_of = [&](int32_t row) { return row_slots[static_cast<size_t>(row)]; };
  const auto slot_of_logits = [&](int32_t row) { return slot_of(arrays.logits_rows[row]); };
  check(std::ssize(row_slots) == shape.num_tokens, "a step without a graph has no padding");
  return {fill_order(shape.num_tokens, slot_of, arrays.lora_order),
          fill_order(shape.num_logits, slot_of_logits, arrays.lora_logits_order)};
}

GpuLoraCopies::Needs lora_copy_needs(const ModelOptions& model, int num_stages,
                                     std::span<const std::string> modules) {
  GpuLoraCopies::Needs most;
  for (int stage = 0; stage < num_stages; ++stage) {
    // No rank of a stage has more than the first.
    ModelOptions part = stage_of_model(model, stage);
    part.rank = 0;
    CountedModel counted(part);
    GpuLoraCopies::Needs needs =
        GpuLoraCopies::needs(counted.model().lora_sites(), modules, model.dtype);
    most.bytes = std::max(most.bytes, needs.bytes);
    if (needs.misaligned) most.misaligned = std::move(needs.misaligned);
  }
  return most;
}

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
