#pragma once
// JSON strings that are being generated, for all goals that are asked of them, as an automaton that
// is made as far as it is visited.
//
// Strings of an automaton escape control characters as \uXXXX and nothing else that way; other
// strings may have any escape. Thread safety: one thread at a time.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

// How an automaton's texts are written within a JSON string.
class EscapedDfa {
 public:
  EscapedDfa(DfaPtr dfa, Budget& budget);

  const Dfa& dfa() const { return *dfa_; }
  // The fewest bytes that lead to an accepting state, escapes and all, without the closing quote.
  uint32_t distance(int32_t state) const { return distance_[static_cast<size_t>(state)]; }
  void append_ending(int32_t state, std::string& out) const;
  // The first byte of the text, not escaped, where distance() is not 0.
  uint8_t next_byte(int32_t state) const { return next_byte_[static_cast<size_t>(state)]; }
  // How many texts lead to an accepting state; UINT32_MAX: at least so many.
  uint32_t num_texts(int32_t state) const { return num_texts_[static_cast<size_t>(state)]; }

 private:
  void find_distances(Budget& budget);
  void count_texts(Budget& budget);

  DfaPtr dfa_;
  std::vector<uint32_t> distance_;
  std::vector<uint8_t> next_byte_;  // of the text itself
  std::vector<uint32_t> num_texts_;
};

using EscapedDfaPtr = std::shared_ptr<const EscapedDfa>;

// Appends a character of one byte as a JSON string has it.
void append_escaped(char character, std::string& out);
// A text as a JSON string, with its quotes.
std::string to_json_string(std::string_view text);

// The strings of one goal: those of an automaton, or all of some lengths in characters.
struct StringTarget {
  uint32_t slot = 0;
  EscapedDfaPtr dfa = nullptr;  // null: any
  uint64_t min_length = 0;      // 0 and UINT64_MAX with an automaton
  uint64_t max_length = UINT64_MAX;
  bool operator==(const StringTarget&) const = default;
};

class StringLexer {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr int32_t kEnd = -2;  // the closing quote

  // The state behind the opening quote; kDead if there are no targets.
  int32_t begin(const std::vector<StringTarget>& targets);
  // Where a byte leads. kEnd only where results() is not 0.
  int32_t step(int32_t state, uint8_t byte) {
    const int32_t next = states_[static_cast<size_t>(state)].next[byte];
    return next != kUnknown ? next : explore(state, byte);
  }
  // The slots whose goals a string that ends here fulfils, as bits.
  uint64_t results(int32_t state) const { return states_[static_cast<size_t>(state)].results; }
  // Whether any text may follow: only the quote makes a difference, and no text of at most
  // `num_bytes` bytes comes to a limit.
  bool is_free(int32_t state, size_t num_bytes) const;
  // Whether such text leads back to this very state.
  bool is_loop(int32_t state) const;

  // Calls visit(slot, bytes to the end with the closing quote) for each target that may still be.
  template <typename Visit>
  void for_each_ending(int32_t state, const Visit& visit) const {
    const State& at = states_[static_cast<size_t>(state)];
    for (size_t i = 0; i < at.targets.size(); ++i) visit(slot_of(at.targets[i]), at.costs[i]);
  }
  // Appends the shortest ending of those of `slot`, with the closing quote.
  void append_ending(int32_t state, uint32_t slot, std::string& out) const;
  // How many texts fulfil a target of `slot`, from here; UINT32_MAX: very many.
  uint32_t num_texts(int32_t state, uint32_t slot) const;

 private:
  static constexpr int32_t kUnknown = -3;

  enum class Mode : uint8_t { kText, kEscape, kHex, kLowEscape, kLowLetter };
  struct At {  // of a target
    uint32_t source = 0;
    int32_t state = 0;
    auto operator<=>(const At&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Place {
    Mode mode = Mode::kText;
    uint8_t num_digits = 0;     // of \uXXXX
    uint8_t more_bytes = 0;     // of the character that has begun
    uint8_t least_next = 0x80;  // of the next of them
    uint8_t most_next = 0xBF;
    bool has_high = false;                           // a high surrogate waits for its low one
    uint16_t code = 0;                               // of \uXXXX so far
    uint64_t length = 0;                             // in characters, as far as it matters
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct State {
    Place place;
    std::vector<At> targets;
    std::vector<uint32_t> costs;
    uint64_t results = 0;
    std::array<int32_t, 256> next{};
  };

  const StringTarget& source(const At& at) const { return sources_[at.source]; }
  uint32_t slot_of(const At& at) const { return source(at).slot; }
  int32_t explore(int32_t state, uint8_t byte);
  int32_t add(const Place& place, std::vector<At> targets);
  uint32_t cost(const Place& place, const At& at) const;
  uint32_t cost_of_escape(const Place& place, const At& at, std::string* text) const;

  // Each gives where a byte leads; false if nowhere.
  bool take(const State& from, uint8_t byte, Place& place, std::vector<At>& targets) const;
  bool take_text(const State& from, uint8_t byte, Place& place, std::vector<At>& targets) const;
  bool take_escape(const State& from, uint8_t byte, Place& place, std::vector<At>& targets) const;
  bool take_hex(const State& from, uint8_t byte, Place& place, std::vector<At>& targets) const;
  // Drops the targets that take no character more.
  void begin_character(const Place& place, std::vector<At>& targets) const;
  // Moves on by a character of one byte that an escape stands for.
  void advance_by(uint8_t character, std::vector<At>& targets) const;
  void count_character(Place& place, const std::vector<At>& targets) const;

  std::vector<StringTarget> sources_;
  std::vector<State> states_;
  std::map<std::pair<Place, std::vector<At>>, int32_t> numbers_;
};

}  // namespace quire::grammar
