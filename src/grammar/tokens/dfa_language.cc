#include "grammar/tokens/dfa_language.h"

#include <array>

namespace quire::grammar {
namespace {

class DfaMatcher final : public ByteMatcher {
 public:
  explicit DfaMatcher(const DfaLanguage& language)
      : language_(&language), states_{language.dfa().start()} {}

  std::unique_ptr<ByteMatcher> clone() const override {
    return std::make_unique<DfaMatcher>(*this);
  }
  bool push(uint8_t byte) override {
    const int32_t next = language_->dfa().step(states_.back(), byte);
    if (next == Dfa::kDead) return false;
    states_.push_back(next);
    return true;
  }
  void pop(size_t count) override { states_.resize(states_.size() - count); }
  void commit() override { states_.erase(states_.begin(), states_.end() - 1); }
  bool can_end() const override { return language_->dfa().accepts(states_.back()); }
  bool must_end() const override { return !language_->goes_on(states_.back()); }
  std::string ending() const override {
    std::string text;
    for (int32_t state = states_.back(); language_->distance(state) > 0;) {
      const uint8_t byte = language_->next_byte(state);
      text += static_cast<char>(byte);
      state = language_->dfa().step(state, byte);
    }
    return text;
  }
  size_t ending_bytes() const override { return language_->distance(states_.back()); }

 private:
  const DfaLanguage* language_;
  std::vector<int32_t> states_;
};

}  // namespace

DfaLanguage::DfaLanguage(GrammarPtr grammar, Budget& budget) : grammar_(std::move(grammar)) {
  const Dfa::Table& table = dfa().table();
  const auto num_states = static_cast<size_t>(dfa().num_states());
  const auto num_classes = static_cast<size_t>(table.num_classes);
  budget.take(num_states * (sizeof(uint32_t) * 3 + num_classes * sizeof(int32_t)));
  std::array<uint8_t, 256> byte_of{};  // of each class
  for (size_t byte = 256; byte-- > 0;) byte_of[table.classes[byte]] = static_cast<uint8_t>(byte);
  distance_.assign(num_states, UINT32_MAX);
  next_byte_.assign(num_states, 0);
  goes_on_.assign(num_states, false);
  std::vector<std::vector<std::pair<int32_t, uint8_t>>> before(num_states);
  std::vector<int32_t> queue;
  for (size_t state = 0; state < num_states; ++state) {
    budget.step();
    for (size_t of = 0; of < num_classes; ++of) {
      const int32_t next = table.next[state * num_classes + of];
      if (next == Dfa::kDead) continue;
      goes_on_[state] = true;
      before[static_cast<size_t>(next)].emplace_back(static_cast<int32_t>(state), byte_of[of]);
    }
    if (!table.accepting[state]) continue;
    distance_[state] = 0;
    queue.push_back(static_cast<int32_t>(state));
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    budget.step();
    const auto at = static_cast<size_t>(queue[i]);
    for (const auto& [state, byte] : before[at]) {
      const auto from = static_cast<size_t>(state);
      if (distance_[from] != UINT32_MAX) continue;
      distance_[from] = distance_[at] + 1;
      next_byte_[from] = byte;
      queue.push_back(state);
    }
  }
}

std::unique_ptr<ByteMatcher> DfaLanguage::begin() const {
  return std::make_unique<DfaMatcher>(*this);
}

}  // namespace quire::grammar
