#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "base/utf8.h"
#include "grammar/string_reader.h"
#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {
namespace {

// The index of the escape that a character needs, or npos.
size_t needed_escape(char character) {
  return kEscapeMeanings.substr(0, kEscapeMeanings.size() - 1).find(character);
}

uint32_t escaped_bytes(uint8_t byte) {
  if (needed_escape(static_cast<char>(byte)) != std::string_view::npos) return 2;
  return byte < 0x20 ? 6 : 1;
}

}  // namespace

void append_escaped(char character, std::string& out) {
  const size_t i = needed_escape(character);
  if (i != std::string_view::npos) {
    out += '\\';
    out += kEscapeNames[i];
  } else if (static_cast<uint8_t>(character) < 0x20) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint8_t>(character));
  } else {
    out += character;
  }
}

std::string to_json_string(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) append_escaped(c, json);
  json += '"';
  return json;
}

EscapedDfa::EscapedDfa(DfaPtr dfa, Budget& budget, Shortest shortest) : dfa_(std::move(dfa)) {
  ScratchMemory memory(budget);
  memory.take(EdgesBack::bytes(dfa_->table()));
  const EdgesBack edges(dfa_->table());
  find_distances(shortest, edges, budget);
  most_distance_ = *std::ranges::max_element(distance_);
  count_texts(edges, budget);
}

void EscapedDfa::find_distances(Shortest shortest, const EdgesBack& edges, Budget& budget) {
  const auto num_states = static_cast<size_t>(dfa_->num_states());
  budget.take(num_states * 64);
  distance_.assign(num_states, UINT32_MAX);
  next_byte_.assign(num_states, 0);
  // The cheapest byte of each class and length.
  const Dfa::Table& table = dfa_->table();
  const auto num_classes = static_cast<size_t>(table.num_classes);
  std::vector<int> byte_of(num_classes, -1);
  for (int byte = 255; byte >= 0; --byte) {
    int& best = byte_of[table.classes[static_cast<size_t>(byte)]];
    // Letters first: endings are read by people.
    const bool is_nicer = best < 0 || escaped_bytes(static_cast<uint8_t>(byte)) <=
                                          escaped_bytes(static_cast<uint8_t>(best));
    const bool spoils_letter = best >= 'a' && best <= 'z' && !(byte >= 'a' && byte <= 'z');
    if (is_nicer && !spoils_letter) best = byte;
  }
  // What is to be few counts first.
  struct Length {
    uint32_t first = 0;
    uint32_t bytes = 0;
    auto operator<=>(const Length&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  std::vector<Length> lengths(num_states, {UINT32_MAX, UINT32_MAX});
  characters_.assign(num_states, 0);
  using Entry = std::pair<Length, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  for (size_t state = 0; state < num_states; ++state) {
    if (!table.accepting[state]) continue;
    lengths[state] = {};
    distance_[state] = 0;
    queue.emplace(Length{}, static_cast<int32_t>(state));
  }
  while (!queue.empty()) {
    budget.step();
    const auto [length, state] = queue.top();
    queue.pop();
    if (length != lengths[static_cast<size_t>(state)]) continue;
    for (const uint32_t edge : edges.to(static_cast<size_t>(state))) {
      const auto from = static_cast<size_t>(edge / num_classes);
      const auto byte = static_cast<uint8_t>(byte_of[edge % num_classes]);
      const uint32_t bytes = escaped_bytes(byte);
      const uint32_t characters = begins_character(byte) ? 1 : 0;
      const Length longer = {length.first + (shortest == Shortest::kBytes ? bytes : characters),
                             length.bytes + bytes};
      if (longer >= lengths[from]) continue;
      lengths[from] = longer;
      distance_[from] = longer.bytes;
      characters_[from] = characters_[static_cast<size_t>(state)] + characters;
      next_byte_[from] = byte;
      queue.emplace(longer, static_cast<int32_t>(from));
    }
  }
}

void EscapedDfa::count_texts(const EdgesBack& edges, Budget& budget) {
  const Dfa::Table& table = dfa_->table();
  const auto num_states = static_cast<size_t>(dfa_->num_states());
  const auto num_classes = static_cast<size_t>(table.num_classes);
  std::vector<uint64_t> bytes(num_classes);
  for (const uint8_t of : table.classes) ++bytes[of];
  num_texts_.assign(num_states, UINT32_MAX);
  // Ends first; what reaches a cycle is never reached.
  std::vector<uint32_t> open(num_states);
  for (size_t state = 0; state < num_states; ++state) {
    budget.step();
    for (size_t of = 0; of < num_classes; ++of) {
      open[state] += table.next[state * num_classes + of] != Dfa::kDead;
    }
  }
  std::vector<uint32_t> todo;
  for (size_t state = 0; state < num_states; ++state) {
    if (open[state] == 0) todo.push_back(static_cast<uint32_t>(state));
  }
  while (!todo.empty()) {
    budget.step();
    const size_t state = todo.back();
    todo.pop_back();
    uint64_t count = table.accepting[state] ? 1 : 0;
    for (size_t of = 0; of < num_classes; ++of) {
      const int32_t to = table.next[state * num_classes + of];
      if (to != Dfa::kDead) count += bytes[of] * num_texts_[static_cast<size_t>(to)];
      count = std::min<uint64_t>(count, UINT32_MAX);
    }
    num_texts_[state] = static_cast<uint32_t>(count);
    for (const uint32_t edge : edges.to(state)) {
      const auto previous = static_cast<uint32_t>(edge / num_classes);
      if (--open[previous] == 0) todo.push_back(previous);
    }
  }
}

void EscapedDfa::append_ending(int32_t state, std::string& out) const {
  while (distance(state) > 0) {
    const uint8_t byte = next_byte_[static_cast<size_t>(state)];
    append_escaped(static_cast<char>(byte), out);
    state = dfa_->step(state, byte);
  }
}

}  // namespace quire::grammar
