#pragma once
// A place in a text of a context-free grammar: Earley's algorithm, forth and back.
//
// Every rule and every automaton of a finished grammar can end, and so can each item: a place with
// items always has an ending, whose bytes are counted exactly.
//
// Ambiguous grammars can take the square of a text's length in items and its cube in steps. So
// there are limits on a byte's steps, on a text's items and on a mask's steps. Once bytes beyond
// the first two are committed, nothing is taken but an ending, without items: a text can always be
// ended. Before a commit they do not count, so what a mask allows is taken, though it is made of
// masks of automata and kept for other texts. Beyond the third the mask lacks tokens, but has the
// ending's.
//
// Masks are put together from those of the automata that are read, which are kept for each of their
// states, and the tokens that lead beyond them. They are kept for all places where the same
// follows.
//
// Thread safety: one thread at a time each.
#include <optional>
#include <string>
#include <vector>

#include "grammar/tokens/byte_matcher.h"
#include "grammar/tokens/context_free_tables.h"

namespace quire::grammar {

class ContextFreeMatcher final : public ByteMatcher {
 public:
  static constexpr size_t kMaxByteSteps = 50'000;  // and four for each symbol of the grammar
  static constexpr size_t kMaxItems = 1'000'000;
  static constexpr size_t kMaxMaskSteps = 1'000'000;

  // `tables` must outlive it.
  explicit ContextFreeMatcher(const ContextFreeTables& tables);

  std::unique_ptr<ByteMatcher> clone() const override;
  bool push(uint8_t byte) override;
  void pop(size_t count) override;
  void commit() override;
  bool can_end() const override;
  bool must_end() const override;
  std::string ending() const override;
  size_t ending_bytes() const override;
  void forget_ending() override { known_ending_.reset(); }
  size_t allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask) override;

  // That are kept, for tests.
  size_t num_places() const { return num_places_; }

 private:
  ContextFreeMatcher(const ContextFreeMatcher& other);

  struct Item {
    int32_t spot;    // of the tables
    int32_t origin;  // the place at which the production begins
    int32_t state;   // of the automaton at the spot
    bool operator==(const Item&) const = default;
  };
  // The items of a place that wait for one rule, and the shortest ending behind that rule.
  struct Group {
    int32_t rule;
    uint32_t begin;  // in Place::waits
    uint32_t end;
    uint32_t best = 0;  // the item whose ending is the shortest
    size_t after = SIZE_MAX;
  };
  struct Place {
    std::vector<Item> texts;  // that wait for bytes
    std::vector<Item> waits;  // that wait for rules, sorted by them
    std::vector<Group> groups;
    bool is_end = false;
    bool is_costly = false;  // its byte took more than kMaxByteSteps
    uint64_t number = 0;     // of what waits here, 0: not known
  };
  // Items of the place in the making, each once, and the rules predicted there.
  struct Scratch {
    std::vector<Item> items;
    std::vector<uint64_t> slots;  // an open hash table: round and index
    std::vector<uint32_t> predicted;
    uint32_t round = 0;
    size_t steps = 0;
  };

  const Place& newest() const { return places_[num_places_ - 1]; }
  Place& add_place();
  void begin_items();
  void add(int32_t spot, int32_t origin);
  void add_item(const Item& item);
  void grow_slots();
  void predict(int32_t rule);
  void complete(int32_t rule, int32_t origin);
  // Adds what follows from the items, and makes a place of them.
  void close();
  void sort_items(Place& place);
  const Group* group_of(const Place& place, int32_t rule) const;
  bool push_ending(uint8_t byte);
  // From here on nothing is taken but an ending.
  void go_to_end();
  void drop_unused_places();

  // What an item's ending takes, where those of the places before its own are known.
  size_t item_ending(const Item& item) const;
  // Bytes behind a rule that began at a place.
  size_t after(int32_t origin, int32_t rule) const;
  // Finds the shortest endings of the groups of all places before `end`.
  void find_endings(size_t end) const;
  const Item* best_item(size_t place, size_t& bytes) const;
  size_t find_ending_bytes() const;
  std::string ending_of(size_t place) const;

  // What can follow the newest place: places of one key allow the same tokens.
  PlaceMasks::Key mask_key();
  void number_places(size_t end);
  PlaceMasks::MaskPtr make_mask(const TokenTrie& trie);
  void allow_in_time(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask);
  // Bytes behind the text that an item reads.
  size_t bytes_behind(const Item& text) const;

  const ContextFreeTables* tables_;
  // Those behind num_places_ are kept for their memory.
  mutable std::vector<Place> places_;
  size_t num_places_ = 0;
  size_t committed_ = 0;          // the place where the text is committed
  size_t num_items_ = 0;          // of all places
  mutable size_t num_known_ = 0;  // the places whose groups' endings are known
  size_t used_places_ = 64;       // when unused ones were dropped
  std::string bytes_;             // taken since `committed_`
  Scratch scratch_;

  // What ending() said, less what was committed of it since; none: other bytes came. A way to an
  // end that a caller may count on stays open at the limits.
  mutable std::optional<std::string> known_ending_;

  bool is_closed_ = false;  // beyond the limits: nothing is taken but `closing_`
  std::string closing_;
  size_t closed_ = 0;  // bytes of it that are taken

  static constexpr size_t kNoMask = SIZE_MAX;
  size_t mask_steps_ = kNoMask;     // within allow_tokens()
  mutable size_t mask_ending_ = 0;  // the longest one met there
};

}  // namespace quire::grammar
