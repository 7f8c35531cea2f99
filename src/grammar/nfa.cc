#include "grammar/nfa.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <string>
#include <unordered_map>

#include "base/utf8.h"
#include "grammar/json_tree.h"

namespace quire::grammar {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;

bool is_word_byte(size_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || byte == '_' ||
         (byte >= 'a' && byte <= 'z');
}

}  // namespace

CharacterSet normalised(CharacterSet set) {
  std::ranges::sort(set, {}, &CharacterRange::first);
  CharacterSet out;
  for (const CharacterRange range : set) {
    if (!out.empty() && range.first <= out.back().last + 1) {
      out.back().last = std::max(out.back().last, range.last);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

CharacterSet inverted(const CharacterSet& set) {
  CharacterSet out;
  char32_t next = 0;
  for (const CharacterRange range : set) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCharacter) out.push_back({next, kLastCharacter});
  return out;
}

int32_t Nfa::add_state() {
  states_.emplace_back();
  return static_cast<int32_t>(states_.size() - 1);
}

void Nfa::add_bytes(int32_t from, uint8_t first, uint8_t last, int32_t to) {
  states_[static_cast<size_t>(from)].bytes.push_back({first, last, to});
}

void Nfa::add_epsilon(int32_t from, Epsilon when, int32_t to) {
  states_[static_cast<size_t>(from)].epsilons.push_back({when, to});
}

int32_t Nfa::any_continuation(std::vector<int32_t>& made, int level, int32_t next) {
  if (level == 0) return next;
  int32_t& state = made[static_cast<size_t>(level)];
  if (state < 0) {
    const int32_t after = any_continuation(made, level - 1, next);
    const int32_t added = add_state();
    add_bytes(added, 0x80, 0xBF, after);
    made[static_cast<size_t>(level)] = added;
  }
  return made[static_cast<size_t>(level)];
}

// Cuts the range into parts whose bytes vary independently of each other.
void Nfa::add_utf8_range(int32_t from, char32_t first, char32_t last, int32_t next,
                         std::vector<int32_t>& made) {
  constexpr char32_t kLengthEnds[] = {0x7F, 0x7FF, 0xFFFF};
  for (const char32_t end : kLengthEnds) {
    if (first <= end && last > end) {
      add_utf8_range(from, first, end, next, made);
      add_utf8_range(from, end + 1, last, next, made);
      return;
    }
  }
  for (int i = 1; i < 4; ++i) {
    const char32_t mask = (char32_t{1} << (6 * i)) - 1;
    if (first <= 0x7F || (first & ~mask) == (last & ~mask)) continue;
    if ((first & mask) != 0) {
      add_utf8_range(from, first, first | mask, next, made);
      add_utf8_range(from, (first | mask) + 1, last, next, made);
      return;
    }
    if ((last & mask) != mask) {
      add_utf8_range(from, first, (last & ~mask) - 1, next, made);
      add_utf8_range(from, last & ~mask, last, next, made);
      return;
    }
  }
  std::string low;
  std::string high;
  append_utf8(low, first);
  append_utf8(high, last);
  const size_t length = low.size();
  int32_t state = from;
  for (size_t i = 0; i < length; ++i) {
    const auto low_byte = static_cast<uint8_t>(low[i]);
    const auto high_byte = static_cast<uint8_t>(high[i]);
    bool rest_is_free = true;
    for (size_t j = i + 1; j < length; ++j) {
      rest_is_free &= low[j] == '\x80' && high[j] == '\xBF';
    }
    if (rest_is_free) {
      add_bytes(state, low_byte, high_byte,
                any_continuation(made, static_cast<int>(length - i - 1), next));
      return;
    }
    const int32_t after = add_state();
    add_bytes(state, low_byte, high_byte, after);
    state = after;
  }
}

int32_t Nfa::add_characters(const CharacterSet& set, int32_t next) {
  const int32_t from = add_state();
  std::vector<int32_t> made(4, -1);
  for (const CharacterRange range : set) {
    // Surrogates are no characters.
    if (range.first < 0xD800) {
      add_utf8_range(from, range.first, std::min<char32_t>(range.last, 0xD7FF), next, made);
    }
    if (range.last > 0xDFFF) {
      add_utf8_range(from, std::max<char32_t>(range.first, 0xE000), range.last, next, made);
    }
  }
  return from;
}

int32_t Nfa::add_dfa(const Dfa& dfa, int32_t next) {
  const int32_t first = static_cast<int32_t>(states_.size());
  for (int32_t i = 0; i < std::max(dfa.num_states(), 1); ++i) add_state();
  if (dfa.is_empty()) return first;
  for (int32_t state = 0; state < dfa.num_states(); ++state) {
    if (dfa.accepts(state)) add_epsilon(first + state, Epsilon::kAlways, next);
    for (int begin = 0; begin < 256;) {
      const int32_t to = dfa.step(state, static_cast<uint8_t>(begin));
      int end = begin + 1;
      while (end < 256 && dfa.step(state, static_cast<uint8_t>(end)) == to) ++end;
      if (to >= 0) {
        add_bytes(first + state, static_cast<uint8_t>(begin), static_cast<uint8_t>(end - 1),
                  first + to);
      }
      begin = end;
    }
  }
  return first;
}

int32_t Nfa::add_text(std::string_view text, int32_t next) {
  for (size_t i = text.size(); i-- > 0;) {
    const int32_t state = add_state();
    const auto byte = static_cast<uint8_t>(text[i]);
    add_bytes(state, byte, byte, next);
    next = state;
  }
  return next;
}

bool Nfa::reaches(int32_t from, Epsilon when) const {
  std::vector<bool> seen(states_.size());
  std::vector<int32_t> todo = {from};
  seen[static_cast<size_t>(from)] = true;
  const auto visit = [&](int32_t to) {
    if (seen[static_cast<size_t>(to)]) return;
    seen[static_cast<size_t>(to)] = true;
    todo.push_back(to);
  };
  while (!todo.empty()) {
    const State& state = states_[static_cast<size_t>(todo.back())];
    todo.pop_back();
    for (const EpsilonEdge& edge : state.epsilons) {
      if (edge.when == when) return true;
      visit(edge.to);
    }
    for (const ByteEdge& edge : state.bytes) visit(edge.to);
  }
  return false;
}

// Rabin and Scott's construction. A state is the set of the Nfa's states before the edges that
// depend on the next byte (ends of words, of the text) are followed, and what the last byte was.
class SubsetConstruction {
 public:
  SubsetConstruction(const Nfa& nfa, Budget& budget)
      : nfa_(nfa), budget_(budget), mark_(nfa.states_.size()) {
    for (std::vector<int32_t>& known : behind_one_) known.assign(nfa.states_.size(), kUnknown);
    find_classes();
  }

  DfaPtr run(int32_t from) {
    std::vector<int32_t> first = closure({from}, {.at_start = true});
    first.push_back(kStart);
    number_of(std::move(first));
    for (size_t i = 0; i < sets_.size(); ++i) expand(i);
    budget_.give_back(taken_);
    return std::make_shared<Dfa>(std::move(table_), budget_);
  }

 private:
  struct Context {
    bool at_start = false;
    bool at_end = false;
    bool next_is_known = false;
    bool at_word_edge = false;
  };
  struct SetHash {
    size_t operator()(const std::vector<int32_t>& set) const {
      uint64_t hash = 0x9E3779B97F4A7C15;
      for (const int32_t state : set) {
        hash = (hash ^ static_cast<uint32_t>(state)) * 0xFF51AFD7ED558CCD;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };
  // Marks at the end of a set.
  static constexpr int32_t kStart = -1;
  static constexpr int32_t kAfterWord = -2;
  static constexpr int32_t kUnknown = -1;

  void find_classes() {
    std::bitset<257> begins;
    begins[0x80] = begins[0xC0] = true;
    for (const Nfa::State& state : nfa_.states_) {
      for (const Nfa::ByteEdge& edge : state.bytes) {
        begins[edge.first] = true;
        begins[static_cast<size_t>(edge.last) + 1] = true;
      }
      for (const Nfa::EpsilonEdge& edge : state.epsilons) {
        has_words_ |=
            edge.when == Nfa::Epsilon::kAtWordEdge || edge.when == Nfa::Epsilon::kInsideWord;
      }
    }
    for (size_t byte = 1; byte < 256 && has_words_; ++byte) {
      if (is_word_byte(byte) != is_word_byte(byte - 1)) begins[byte] = true;
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      if (byte == 0 || begins[byte]) {
        ++table_.num_classes;
        class_is_word_.push_back(is_word_byte(byte));
      }
      table_.classes[byte] = static_cast<uint8_t>(table_.num_classes - 1);
    }
    buckets_.resize(static_cast<size_t>(table_.num_classes));
  }

  static bool holds(Nfa::Epsilon when, const Context& context) {
    switch (when) {
      case Nfa::Epsilon::kAlways:
        return true;
      case Nfa::Epsilon::kAtStart:
        return context.at_start;
      case Nfa::Epsilon::kAtEnd:
        return context.at_end;
      case Nfa::Epsilon::kAtWordEdge:
        return context.next_is_known && context.at_word_edge;
      case Nfa::Epsilon::kInsideWord:
        return context.next_is_known && !context.at_word_edge;
    }
    return false;
  }

  // Sorted; states that have nothing but edges that were followed are left out.
  std::vector<int32_t> closure(const std::vector<int32_t>& from, const Context& context) {
    ++round_;
    std::vector<int32_t> set;
    const auto visit = [&](int32_t state) {
      if (mark_[static_cast<size_t>(state)] == round_) return;
      mark_[static_cast<size_t>(state)] = round_;
      todo_.push_back(state);
    };
    for (const int32_t state : from) {
      if (state >= 0) visit(state);
    }
    while (!todo_.empty()) {
      budget_.step();
      const int32_t number = todo_.back();
      todo_.pop_back();
      const Nfa::State& state = nfa_.states_[static_cast<size_t>(number)];
      bool is_kept = !state.bytes.empty() || number == nfa_.accept();
      for (const Nfa::EpsilonEdge& edge : state.epsilons) {
        if (holds(edge.when, context)) {
          visit(edge.to);
        } else {
          is_kept = true;
        }
      }
      if (is_kept) set.push_back(number);
    }
    std::ranges::sort(set);
    return set;
  }

  int32_t number_of(std::vector<int32_t> set) {
    const auto [found, is_new] =
        numbers_.try_emplace(std::move(set), static_cast<int32_t>(sets_.size()));
    if (is_new) {
      sets_.push_back(&found->first);
      const size_t bytes = found->first.size() * sizeof(int32_t) + 96;
      budget_.take(bytes);
      taken_ += bytes;
    }
    return found->second;
  }

  // Whether a text may end at a set.
  bool accepts(const std::vector<int32_t>& set, bool at_start, bool after_word) {
    const bool has_conditions = std::ranges::any_of(set, [&](int32_t state) {
      return state >= 0 && !nfa_.states_[static_cast<size_t>(state)].epsilons.empty();
    });
    if (!has_conditions) return !set.empty() && set.front() == nfa_.accept();
    const std::vector<int32_t> at_end =
        closure(set, {at_start, /*at_end=*/true, /*next_is_known=*/true, after_word});
    return !at_end.empty() && at_end.front() == nfa_.accept();
  }

  // The set behind a byte that leads to `states`.
  int32_t number_behind(const std::vector<int32_t>& states, bool after_word) {
    // Often it is one state, and the same one again and again.
    int32_t& known = behind_one_[after_word ? 1 : 0][static_cast<size_t>(states.front())];
    if (states.size() == 1 && known != kUnknown) return known;
    std::vector<int32_t> next = closure(states, {});
    if (after_word) next.push_back(kAfterWord);
    const int32_t number = number_of(std::move(next));
    if (states.size() == 1) known = number;
    return number;
  }

  void expand(size_t i) {
    budget_.step();
    const std::vector<int32_t>& set = *sets_[i];
    const int32_t mark = set.empty() ? 0 : set.back();
    const bool at_start = mark == kStart;
    const bool after_word = mark == kAfterWord;
    table_.accepting.push_back(accepts(set, at_start, after_word));
    for (auto& bucket : buckets_) bucket.clear();
    if (has_words_) {
      for (const bool next_is_word : {false, true}) {
        const std::vector<int32_t> now =
            closure(set, {at_start, false, true, after_word != next_is_word});
        fill_buckets(now, next_is_word, !next_is_word);
      }
    } else {
      fill_buckets(set, true, true);
    }
    for (size_t c = 0; c < buckets_.size(); ++c) {
      if (buckets_[c].empty()) {
        table_.next.push_back(Dfa::kDead);
        continue;
      }
      const bool is_word = has_words_ && class_is_word_[c];
      const bool is_as_before =
          c > 0 && buckets_[c] == buckets_[c - 1] && class_is_word_[c] == class_is_word_[c - 1];
      table_.next.push_back(is_as_before ? table_.next.back()
                                         : number_behind(buckets_[c], is_word));
    }
    const size_t row = buckets_.size() * sizeof(int32_t);
    budget_.take(row);
    taken_ += row;
  }

  void fill_buckets(const std::vector<int32_t>& set, bool word_bytes, bool other_bytes) {
    for (const int32_t number : set) {
      if (number < 0) continue;
      budget_.step();
      for (const Nfa::ByteEdge& edge : nfa_.states_[static_cast<size_t>(number)].bytes) {
        for (size_t c = table_.classes[edge.first]; c <= table_.classes[edge.last]; ++c) {
          if (class_is_word_[c] ? word_bytes : other_bytes) buckets_[c].push_back(edge.to);
        }
      }
    }
  }

  const Nfa& nfa_;
  Budget& budget_;
  Dfa::Table table_;
  std::vector<bool> class_is_word_;  // right where has_words_, which cuts classes at words' bytes
  bool has_words_ = false;
  std::vector<std::vector<int32_t>> buckets_;
  std::unordered_map<std::vector<int32_t>, int32_t, SetHash> numbers_;
  std::vector<const std::vector<int32_t>*> sets_;
  std::array<std::vector<int32_t>, 2> behind_one_;  // the set behind each state alone; after a word
  std::vector<int32_t> todo_;
  std::vector<uint32_t> mark_;
  uint32_t round_ = 0;
  size_t taken_ = 0;
};

DfaPtr Nfa::determinise(int32_t from, Budget& budget) const {
  return SubsetConstruction(*this, budget).run(from);
}

}  // namespace quire::grammar
