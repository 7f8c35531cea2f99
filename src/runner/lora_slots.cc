#include "runner/lora_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

LoraSlots::LoraSlots(const Model& model, int max_loras, int64_t max_rank, DType dtype,
                     ThreadPool& pool)
    : sites_(model.lora_sites()),
      max_loras_(static_cast<size_t>(max_loras)),
      dtype_(dtype),
      pool_(pool),
      scratch_(Buffer(LoraStep::scratch_bytes(sites_, max_rank))) {}

size_t LoraSlots::bytes(const Model& model, int max_loras, int64_t max_rank, DType dtype) {
  const LoraSites sites = model.lora_sites();
  return static_cast<size_t>(max_loras) * lora_bytes(sites, max_rank, dtype) +
         LoraStep::scratch_bytes(sites, max_rank);
}

const LoraStep* LoraSlots::prepare(std::span<const StepSequence> sequences, int64_t num_tokens) {
  current_.reset();
  ++step_;
  const bool any = std::ranges::any_of(
      sequences, [](const StepSequence& sequence) { return sequence.state.request->lora_id != 0; });
  if (!any) return nullptr;
  // First those that are in slots already, so that none of them has to leave for another one of
  // this step.
  for (const StepSequence& sequence : sequences) {
    const auto slot = slots_.find(sequence.state.request->lora_id);
    if (slot != slots_.end()) slot->second.last_step = step_;
  }
  std::vector<const LoraLayers*> adapters(static_cast<size_t>(num_tokens), nullptr);
  auto row = adapters.begin();
  for (const StepSequence& sequence : sequences) {
    const Request& request = *sequence.state.request;
    const LoraLayers* adapter = request.lora_id == 0 ? nullptr : &take(request);
    row = std::fill_n(row, sequence.chunk.num_tokens, adapter);
  }
  current_.emplace(std::move(adapters), scratch_);
  return &*current_;
}

const LoraLayers& LoraSlots::take(const Request& request) {
  const auto found = slots_.find(request.lora_id);
  if (found != slots_.end()) return found->second.layers;
  check(request.lora != nullptr, "a request with an adapter has its weights");
  make_room();
  Slot slot = {.last_step = step_, .layers = LoraLayers(*request.lora, sites_, dtype_, pool_)};
  return slots_.emplace(request.lora_id, std::move(slot)).first->second.layers;
}

void LoraSlots::make_room() {
  if (slots_.size() < max_loras_) return;
  const auto oldest =
      std::ranges::min_element(slots_, {}, [](const auto& slot) { return slot.second.last_step; });
  check(oldest->second.last_step < step_, "a step has no more adapters than there are slots");
  slots_.erase(oldest);
}

}  // namespace quire
