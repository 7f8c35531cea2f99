#include "grammar/tokens/dfa_endings.h"

#include <algorithm>
#include <array>

namespace quire::grammar {

DfaEndings::DfaEndings(const Dfa& dfa, Budget& budget) : dfa_(&dfa) {
  const Dfa::Table& table = dfa.table();
  const auto num_states = static_cast<size_t>(dfa.num_states());
  const auto num_classes = static_cast<size_t>(table.num_classes);
  budget.take(sizeof(DfaEndings) + num_states * (sizeof(uint32_t) + 2));
  ScratchMemory memory(budget);
  memory.take(num_states * sizeof(uint32_t) + EdgesBack::bytes(table));
  std::array<uint8_t, 256> byte_of{};  // of each class
  for (size_t byte = 256; byte-- > 0;) byte_of[table.classes[byte]] = static_cast<uint8_t>(byte);
  distance_.assign(num_states, UINT32_MAX);
  next_byte_.assign(num_states, 0);
  goes_on_.assign(num_states, false);
  const EdgesBack edges(dfa.table());
  std::vector<int32_t> queue;
  for (size_t state = 0; state < num_states; ++state) {
    budget.step();
    for (size_t of = 0; of < num_classes; ++of) {
      if (table.next[state * num_classes + of] != Dfa::kDead) goes_on_[state] = true;
    }
    if (!table.accepting[state]) continue;
    distance_[state] = 0;
    queue.push_back(static_cast<int32_t>(state));
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    budget.step();
    const auto at = static_cast<size_t>(queue[i]);
    largest_distance_ = std::max(largest_distance_, distance_[at]);
    for (const uint32_t edge : edges.to(at)) {
      const size_t from = edge / num_classes;
      if (distance_[from] != UINT32_MAX) continue;
      distance_[from] = distance_[at] + 1;
      next_byte_[from] = byte_of[edge % num_classes];
      queue.push_back(static_cast<int32_t>(from));
    }
  }
}

void DfaEndings::append(int32_t state, std::string& text) const {
  while (distance(state) > 0) {
    const uint8_t byte = next_byte_[static_cast<size_t>(state)];
    text += static_cast<char>(byte);
    state = dfa_->step(state, byte);
  }
}

}  // namespace quire::grammar
