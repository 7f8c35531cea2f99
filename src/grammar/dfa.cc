#include "grammar/dfa.h"

#include <algorithm>
#include <unordered_map>

#include "base/utf8.h"
#include "grammar/nfa.h"

namespace quire::grammar {
namespace {

// Numbers pairs of states as they are met.
class PairStates {
 public:
  int32_t number_of(int32_t a, int32_t b) {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<int32_t>(pairs_.size()));
    if (is_new) pairs_.emplace_back(a, b);
    return found->second;
  }
  size_t size() const { return pairs_.size(); }
  std::pair<int32_t, int32_t> operator[](size_t i) const { return pairs_[i]; }

 private:
  std::unordered_map<uint64_t, int32_t> numbers_;
  std::vector<std::pair<int32_t, int32_t>> pairs_;
};

// Classes of bytes that two tables both treat alike; `representatives` has a byte of each.
void join_classes(const Dfa::Table& a, const Dfa::Table& b, Dfa::Table& joined,
                  std::vector<uint8_t>& representatives) {
  std::vector<int> seen(static_cast<size_t>(a.num_classes * b.num_classes), -1);
  for (size_t byte = 0; byte < 256; ++byte) {
    const size_t of_a = a.classes[byte];
    int& number = seen[of_a * static_cast<size_t>(b.num_classes) + b.classes[byte]];
    if (number < 0) {
      number = joined.num_classes++;
      representatives.push_back(static_cast<uint8_t>(byte));
    }
    joined.classes[byte] = static_cast<uint8_t>(number);
  }
}

bool is_wanted(bool in_a, bool in_b, Combine how) {
  if (how == Combine::kBoth) return in_a && in_b;
  if (how == Combine::kEither) return in_a || in_b;
  return in_a && !in_b;
}

}  // namespace

Dfa::Dfa(Table table, Budget& budget) : table_(std::move(table)) {
  trim(budget);
  budget.take(table_.next.size() * sizeof(int32_t) + sizeof(Dfa));
}

EdgesBack::EdgesBack(const Dfa::Table& table) : begin_(table.accepting.size() + 2) {
  for (const int32_t to : table.next) {
    if (to >= 0) ++begin_[static_cast<size_t>(to) + 2];
  }
  for (size_t i = 2; i < begin_.size(); ++i) begin_[i] += begin_[i - 1];
  edges_.resize(begin_.back());
  for (size_t i = 0; i < table.next.size(); ++i) {
    const int32_t to = table.next[i];
    if (to >= 0) edges_[begin_[static_cast<size_t>(to) + 1]++] = static_cast<uint32_t>(i);
  }
}

bool Dfa::matches(std::string_view text) const {
  int32_t state = start();
  for (const char c : text) state = step(state, static_cast<uint8_t>(c));
  return accepts(state);
}

void Dfa::trim(Budget& budget) {
  const size_t num_states = table_.accepting.size();
  const auto num_classes = static_cast<size_t>(table_.num_classes);
  const EdgesBack edges(table_);
  std::vector<bool> live = table_.accepting;
  std::vector<uint32_t> todo;
  for (size_t i = 0; i < num_states; ++i) {
    if (live[i]) todo.push_back(static_cast<uint32_t>(i));
  }
  while (!todo.empty()) {
    const uint32_t state = todo.back();
    todo.pop_back();
    budget.step();
    for (const uint32_t edge : edges.to(state)) {
      const auto from = static_cast<uint32_t>(edge / num_classes);
      if (live[from]) continue;
      live[from] = true;
      todo.push_back(from);
    }
  }
  is_empty_ = num_states == 0 || !live[0];
  std::vector<int32_t> renumbered(num_states, kDead);
  int32_t count = 0;
  for (size_t i = 0; i < num_states; ++i) {
    if (live[i]) renumbered[i] = count++;
  }
  if (static_cast<size_t>(count) == num_states) return;
  size_t write = 0;
  for (size_t i = 0; i < num_states; ++i) {
    if (!live[i]) continue;
    for (size_t c = 0; c < num_classes; ++c) {
      const int32_t to = table_.next[i * num_classes + c];
      table_.next[write * num_classes + c] = to < 0 ? kDead : renumbered[to_size(to)];
    }
    table_.accepting[write++] = table_.accepting[i];
  }
  table_.next.resize(write * num_classes);
  table_.accepting.resize(write);
}

Dfa::Lengths Dfa::lengths() const {
  const auto num_states = to_size(this->num_states());
  const auto num_classes = to_size(table_.num_classes);
  std::vector<uint8_t> weight(num_classes);
  for (size_t byte = 0; byte < 256; ++byte) {
    weight[table_.classes[byte]] = begins_character(static_cast<uint8_t>(byte)) ? 1 : 0;
  }
  Lengths lengths{std::vector<uint32_t>(num_states, kUnbounded),
                  std::vector<uint32_t>(num_states, kUnbounded)};
  std::vector<uint32_t> open(num_states);  // edges whose end's longest way is not known yet
  const EdgesBack edges(table_);
  for (size_t state = 0; state < num_states; ++state) {
    for (size_t c = 0; c < num_classes; ++c)
      open[state] += table_.next[state * num_classes + c] >= 0;
  }
  // The longest ways, of states from which no cycle is reached, ends first.
  std::vector<uint32_t> todo;
  std::vector<uint32_t> longest(num_states);
  for (size_t i = 0; i < num_states; ++i) {
    if (open[i] == 0) todo.push_back(static_cast<uint32_t>(i));
  }
  while (!todo.empty()) {
    const uint32_t state = todo.back();
    todo.pop_back();
    lengths.most[state] = longest[state];
    for (const uint32_t edge : edges.to(state)) {
      const size_t previous = edge / num_classes;
      longest[previous] = std::max(longest[previous], longest[state] + weight[edge % num_classes]);
      if (--open[previous] == 0) todo.push_back(static_cast<uint32_t>(previous));
    }
  }
  // The shortest ways: breadth first, edges of weight 0 within the same round.
  std::vector<uint32_t> round;
  for (size_t i = 0; i < num_states; ++i) {
    if (!table_.accepting[i]) continue;
    lengths.fewest[i] = 0;
    round.push_back(static_cast<uint32_t>(i));
  }
  for (uint32_t distance = 0; !round.empty(); ++distance) {
    std::vector<uint32_t> next_round;
    for (size_t i = 0; i < round.size(); ++i) {
      if (lengths.fewest[round[i]] != distance) continue;
      for (const uint32_t edge : edges.to(round[i])) {
        const auto previous = static_cast<uint32_t>(edge / num_classes);
        const uint32_t longer = distance + weight[edge % num_classes];
        if (lengths.fewest[previous] <= longer) continue;
        lengths.fewest[previous] = longer;
        (longer == distance ? round : next_round).push_back(previous);
      }
    }
    round = std::move(next_round);
  }
  return lengths;
}

DfaPtr combine(const Dfa& a, const Dfa& b, Combine how, Budget& budget) {
  Dfa::Table table;
  std::vector<uint8_t> representatives;
  join_classes(a.table(), b.table(), table, representatives);
  PairStates pairs;
  pairs.number_of(a.start(), b.start());
  size_t taken = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    budget.step();
    const auto [state_a, state_b] = pairs[i];
    table.accepting.push_back(is_wanted(a.accepts(state_a), b.accepts(state_b), how));
    const size_t row = representatives.size() * sizeof(int32_t) + 64;
    budget.take(row);
    taken += row;
    for (const uint8_t byte : representatives) {
      const int32_t next_a = a.step(state_a, byte);
      const int32_t next_b = b.step(state_b, byte);
      const bool is_dead = how == Combine::kEither ? next_a < 0 && next_b < 0
                           : how == Combine::kBoth ? next_a < 0 || next_b < 0
                                                   : next_a < 0;
      table.next.push_back(is_dead ? Dfa::kDead : pairs.number_of(next_a, next_b));
    }
  }
  budget.give_back(taken);
  return std::make_shared<Dfa>(std::move(table), budget);
}

DfaPtr utf8_dfa(Budget& budget) {
  Nfa nfa;
  const int32_t loop = nfa.add_state();
  nfa.add_epsilon(loop, Nfa::Epsilon::kAlways, nfa.accept());
  const int32_t character = nfa.add_characters({{0, 0x10FFFF}}, loop);
  nfa.add_epsilon(loop, Nfa::Epsilon::kAlways, character);
  return nfa.determinise(loop, budget);
}

}  // namespace quire::grammar
