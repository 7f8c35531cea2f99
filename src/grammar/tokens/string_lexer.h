#pragma once
// JSON strings that are being generated, for all goals that are asked of them, as an automaton that
// is made as far as it is visited.
//
// Strings of an automaton escape control characters as \uXXXX and nothing else that way; other
// strings may have any escape. Thread safety: one thread at a time.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/dfa.h"
#include "grammar/tokens/byte_groups.h"
#include "grammar/tokens/free_text.h"
#include "grammar/tokens/text_kind.h"

namespace quire::grammar {

// How an automaton's texts are written within a JSON string.
class EscapedDfa {
 public:
  // What an ending has few of: bytes, or characters, and of these few bytes.
  enum class Shortest { kBytes, kCharacters };

  EscapedDfa(DfaPtr dfa, Budget& budget, Shortest shortest = Shortest::kBytes);

  const Dfa& dfa() const { return *dfa_; }
  // Bytes of the shortest way to an accepting state, escapes and all, without the closing quote;
  // and its characters that have not begun.
  uint32_t distance(int32_t state) const { return distance_[static_cast<size_t>(state)]; }
  uint32_t num_characters(int32_t state) const { return characters_[static_cast<size_t>(state)]; }
  void append_ending(int32_t state, std::string& out) const;
  // The first byte of the text, not escaped, where distance() is not 0.
  uint8_t next_byte(int32_t state) const { return next_byte_[static_cast<size_t>(state)]; }
  // How many texts lead to an accepting state; UINT32_MAX: at least so many.
  uint32_t num_texts(int32_t state) const { return num_texts_[static_cast<size_t>(state)]; }
  // The most of all states.
  uint32_t most_distance() const { return most_distance_; }

 private:
  void find_distances(Shortest shortest, const EdgesBack& edges, Budget& budget);
  void count_texts(const EdgesBack& edges, Budget& budget);

  DfaPtr dfa_;
  std::vector<uint32_t> distance_;
  uint32_t most_distance_ = 0;
  std::vector<uint32_t> characters_;
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
  EscapedDfaPtr dfa = nullptr;       // null: any
  uint64_t min_length = 0;           // 0 with an automaton
  uint64_t max_length = UINT64_MAX;  // with an automaton: endings have few characters
  bool operator==(const StringTarget&) const = default;
};

// The index of a target among `known`, to which it is added where it is new.
template <typename Target>
uint32_t index_of(std::vector<Target>& known, const Target& target) {
  const auto found = std::ranges::find(known, target);
  const auto index = static_cast<uint32_t>(found - known.begin());
  if (found == known.end()) known.push_back(target);
  return index;
}

class StringLexer {
 public:
  static constexpr int32_t kDead = -1;
  static constexpr int32_t kEnd = -2;  // the closing quote

  // The state behind the opening quote; kDead if there are no targets.
  int32_t begin(const std::vector<StringTarget>& targets);
  // Where a byte leads. kEnd only where results() is not 0.
  int32_t step(int32_t state, uint8_t byte) {
    const State& from = states_[static_cast<size_t>(state)];
    int32_t next = kUnknown;
    if (from.all != nullptr) {
      next = (*from.all)[byte];
    } else {
      for (uint8_t i = 0; i < from.num_few; ++i) {
        if (from.few[i].first == byte) next = from.few[i].second;
      }
    }
    return next != kUnknown ? next : explore(state, byte);
  }
  // The slots whose goals a string that ends here fulfils, as bits.
  uint64_t results(int32_t state) const { return states_[static_cast<size_t>(state)].results; }
  // Whether no character has begun.
  bool is_between_characters(int32_t state) const {
    const Place& place = states_[static_cast<size_t>(state)].place;
    return place.mode == Mode::kText && place.more_bytes == 0;
  }
  // How many characters a target without an automaton lacks, and takes at most.
  struct Room {
    uint32_t slot = 0;
    uint64_t missing = 0;
    uint64_t most = 0;
  };
  // Those of all targets, between characters; nothing where one has an automaton.
  std::optional<std::vector<Room>> rooms(int32_t state) const;
  // There, the state behind so many more characters.
  int32_t behind_characters(int32_t state, uint64_t num_characters);

  bool has_automata(int32_t state) const;
  // Whether a target has limits to its length.
  bool is_limited(int32_t state) const;
  // The same state as if no target had limits: how many characters tokens have is the same at any
  // length.
  int32_t without_limits(int32_t state);
  // Calls visit(source, characters that may still come) for the targets of a state with limits, and
  // visit(source, characters that have to come) for those of one without them, both beside a
  // character that has begun. A source of the one is the same target's of the other.
  template <typename Visit>
  void for_each_limit(int32_t state, const Visit& visit) {
    const uint64_t length = begun_length(states_[static_cast<size_t>(state)].place);
    // A copy: the visitor may ask for more states.
    const std::vector<At> targets = states_[static_cast<size_t>(state)].targets;
    for (const At& at : targets) {
      const uint64_t most = source(at).max_length;
      visit(free_source(at.source), most == UINT64_MAX ? most : most - length);
    }
  }
  template <typename Visit>
  void for_each_need(int32_t state, const Visit& visit) const {
    const State& from = states_[static_cast<size_t>(state)];
    for (const At& at : from.targets) {
      visit(at.source, source(at).dfa ? num_characters(from.place, at) : 0);
    }
  }
  // The state that fulfils what `free`, which without_limits() leads to, does at the length of
  // `state` and so many more characters; kDead where it fulfils nothing. None has begun.
  int32_t with_limits(int32_t state, int32_t free, uint64_t num_characters);
  // What holds wherever text of a kind leads from a state, as long as it has at most so many bytes
  // (UINT32_MAX: however many): it may come, the targets stay, many texts may follow, and nothing
  // has to, or as many characters as from the state itself, for each target. Fewer bytes may be
  // said than it would hold for.
  struct Outlook {
    uint32_t bytes = 0;
    bool is_endless = true;
    bool needs_nothing = true;
    bool needs_as_much = true;
  };
  const Outlook& outlook(int32_t state, TextKind kind);
  bool knows_outlook(int32_t state, TextKind kind) const {
    return (states_[static_cast<size_t>(state)].known_outlooks >> static_cast<int>(kind) & 1) != 0;
  }
  // Text of which any may follow a state between characters, for all of its targets; no groups
  // where few of a vocabulary's tokens are of them. `counts`: as in find_free_text(); `needs` has
  // each target's source and number of characters then, in the order of for_each_need().
  struct FreeTextOfAll {
    ByteGroups groups = 0;
    bool is_endless = true;
    std::vector<std::pair<uint32_t, uint32_t>> needs{};
  };
  const FreeTextOfAll& free_text(int32_t state, bool counts);

  // The most bytes that end a string of one of the targets, however it goes on without a limit to
  // its length.
  uint32_t most_ending_bytes(int32_t state) const;

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
  // Bytes of all states. Thread safety: any thread.
  size_t bytes() const { return num_bytes_.load(std::memory_order_relaxed); }
  // Whether that holds for very many texts of some slot.
  bool is_endless(int32_t state) const { return states_[static_cast<size_t>(state)].is_endless; }

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
    bool is_endless = false;
    uint8_t known_outlooks = 0;  // a bit for each kind of text
    // Where bytes lead, as far as that is known. Most states of a long text know few.
    uint8_t num_few = 0;
    std::array<std::pair<uint8_t, int32_t>, 4> few{};
    std::unique_ptr<std::array<int32_t, 256>> all{};
    std::array<std::unique_ptr<const FreeTextOfAll>, 2> free_text{};  // by `counts`, once found
  };

  const StringTarget& source(const At& at) const { return sources_[at.source]; }
  // The same target without limits.
  uint32_t free_source(uint32_t source);
  static uint64_t begun_length(const Place& place) {
    return place.length + (place.more_bytes > 0 || place.mode != Mode::kText ? 1 : 0);
  }
  uint32_t slot_of(const At& at) const { return source(at).slot; }
  int32_t explore(int32_t state, uint8_t byte);
  int32_t add(const Place& place, std::vector<At> targets);
  Outlook find_outlook(int32_t state, TextKind kind);
  FreeTextOfAll find_free_text_of_all(int32_t state, bool counts) const;
  // Bytes that may come there in text of a kind, one for all that the targets' automata do not
  // tell apart.
  const std::vector<uint8_t>& different_bytes(int32_t state, TextKind kind);
  static uint64_t outlook_key(int32_t state, TextKind kind) {
    return static_cast<uint64_t>(state) * kNumTextKinds + static_cast<uint64_t>(kind);
  }
  uint32_t cost(const Place& place, const At& at) const;
  uint32_t num_texts(const Place& place, const At& at) const;
  uint32_t cost_of_escape(const Place& place, const At& at, std::string* text,
                          int32_t* behind = nullptr) const;
  uint32_t num_characters(const Place& place, const At& at) const;

  // Each gives where a byte leads; false if nowhere.
  bool take(uint8_t byte, Place& place, std::vector<At>& targets) const;
  bool take_text(uint8_t byte, Place& place, std::vector<At>& targets) const;
  bool take_escape(uint8_t byte, Place& place, std::vector<At>& targets) const;
  bool take_hex(uint8_t byte, Place& place, std::vector<At>& targets) const;
  // Drops the targets that take no character more.
  void begin_character(const Place& place, std::vector<At>& targets) const;
  // Moves on by a character of one byte that an escape stands for.
  void advance_by(uint8_t character, std::vector<At>& targets) const;
  void count_character(Place& place, const std::vector<At>& targets) const;
  // A length as far as it matters.
  uint64_t counted(uint64_t length, const std::vector<At>& targets) const;

  std::vector<StringTarget> sources_;
  std::vector<uint32_t> free_sources_;  // by source, where they are known
  std::vector<State> states_;
  std::map<std::pair<Place, std::vector<At>>, int32_t> numbers_;
  std::unordered_map<uint64_t, Outlook> outlooks_;  // by state and kind
  // By kind, place in a character and sources.
  std::map<std::vector<uint32_t>, std::vector<uint8_t>> different_bytes_;
  std::atomic<size_t> num_bytes_ = 0;
};

// Calls visit(least, most) for numbers of characters behind which a string with these rooms fulfils
// the same goals, and at least one.
template <typename Visit>
void for_each_length(const std::vector<StringLexer::Room>& rooms, const Visit& visit) {
  std::vector<uint64_t> bounds = {0, UINT64_MAX};
  for (const StringLexer::Room& room : rooms) {
    bounds.push_back(room.missing);
    if (room.most != UINT64_MAX) bounds.push_back(room.most + 1);
  }
  std::ranges::sort(bounds);
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (bounds[i] == bounds[i + 1]) continue;
    const bool fulfils = std::ranges::any_of(rooms, [&](const StringLexer::Room& room) {
      return room.missing <= bounds[i] && bounds[i] <= room.most;
    });
    if (fulfils) visit(bounds[i], bounds[i + 1] - 1);
  }
}

}  // namespace quire::grammar
