#include "grammar/tokens/trigger_dfa.h"

#include <array>
#include <map>
#include <utility>

namespace quire::grammar {
namespace {

// Aho and Corasick's automaton: a state is the longest end of the text that begins a trigger.
class TriggerSearch {
 public:
  TriggerSearch(const std::vector<std::string>& triggers, Budget& budget) {
    add_state();
    for (size_t i = 0; i < triggers.size(); ++i) add_trigger(triggers[i], static_cast<int32_t>(i));
    budget.take(next_.size() * sizeof(next_[0]));
    // States are followed from the shortest upward.
    std::vector<int32_t> order = {0};
    std::vector<int32_t> shorter(next_.size());
    for (size_t i = 0; i < order.size(); ++i) {
      const auto state = static_cast<size_t>(order[i]);
      for (size_t byte = 0; byte < 256; ++byte) {
        budget.step();
        int32_t& next = next_[state][byte];
        const int32_t instead = state == 0 ? 0 : next_[static_cast<size_t>(shorter[state])][byte];
        if (next < 0) {
          next = instead;
        } else {
          shorter[static_cast<size_t>(next)] = instead;
          order.push_back(next);
        }
      }
    }
  }

  int32_t step(int32_t state, uint8_t byte) const {
    return next_[static_cast<size_t>(state)][byte];
  }
  int32_t trigger(int32_t state) const { return trigger_[static_cast<size_t>(state)]; }

 private:
  int32_t add_state() {
    next_.emplace_back();
    next_.back().fill(-1);
    trigger_.push_back(-1);
    return static_cast<int32_t>(next_.size()) - 1;
  }
  void add_trigger(const std::string& text, int32_t number) {
    int32_t state = 0;
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      if (next_[static_cast<size_t>(state)][byte] < 0) {
        const int32_t added = add_state();
        next_[static_cast<size_t>(state)][byte] = added;
      }
      state = next_[static_cast<size_t>(state)][byte];
    }
    trigger_[static_cast<size_t>(state)] = number;
  }

  std::vector<std::array<int32_t, 256>> next_;
  std::vector<int32_t> trigger_;
};

// Bytes of triggers have a class each, the others that of the automaton of valid text.
void find_trigger_classes(const std::vector<std::string>& triggers, const Dfa& utf8,
                          Dfa::Table& table) {
  std::vector<bool> is_alone(256);
  for (const std::string& trigger : triggers) {
    for (const char c : trigger) is_alone[static_cast<uint8_t>(c)] = true;
  }
  std::map<int, int> numbers;
  for (int byte = 0; byte < 256; ++byte) {
    const auto i = static_cast<size_t>(byte);
    const int key = is_alone[i] ? 256 + byte : utf8.table().classes[i];
    const auto [found, is_new] = numbers.try_emplace(key, table.num_classes);
    if (is_new) ++table.num_classes;
    table.classes[i] = static_cast<uint8_t>(found->second);
  }
}

}  // namespace

TriggerDfa make_trigger_dfa(const std::vector<std::string>& triggers, const Dfa& utf8,
                            Budget& budget) {
  const TriggerSearch search(triggers, budget);
  TriggerDfa made;
  Dfa::Table table;
  find_trigger_classes(triggers, utf8, table);
  std::vector<uint8_t> byte_of(static_cast<size_t>(table.num_classes));
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_of[table.classes[byte]] = static_cast<uint8_t>(byte);
  }
  using Pair = std::pair<int32_t, int32_t>;
  std::map<Pair, int32_t> numbers = {{{0, utf8.start()}, 0}};
  std::vector<Pair> states = {{0, utf8.start()}};
  for (size_t i = 0; i < states.size(); ++i) {
    const auto [at, text] = states[i];
    budget.take(byte_of.size() * sizeof(int32_t) + 96);
    made.utf8_state.push_back(text);
    made.trigger.push_back(search.trigger(at));
    table.accepting.push_back(search.trigger(at) >= 0);
    for (const uint8_t byte : byte_of) {
      budget.step();
      const int32_t next_text = utf8.step(text, byte);
      if (search.trigger(at) >= 0 || next_text == Dfa::kDead) {
        table.next.push_back(Dfa::kDead);
        continue;
      }
      const Pair next = {search.step(at, byte), next_text};
      const auto [found, is_new] = numbers.try_emplace(next, static_cast<int32_t>(states.size()));
      if (is_new) states.push_back(next);
      table.next.push_back(found->second);
    }
  }
  // From each state a trigger can be reached: none is taken out.
  made.dfa = std::make_shared<Dfa>(std::move(table), budget);
  return made;
}

}  // namespace quire::grammar
