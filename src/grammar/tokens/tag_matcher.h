#pragma once
// A place in a text with tags. Where tags, inner texts and ends begin alike, all ways that are
// possible are followed at once: alternatives.
//
// Thread safety: one thread at a time each.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/tokens/byte_matcher.h"
#include "grammar/tokens/tag_tables.h"

namespace quire::grammar {

class TagMatcher final : public ByteMatcher {
 public:
  // Beyond these, alternatives with long endings are no longer followed from a commit on. Bytes
  // that are pushed before it drop none, so each token of a mask is taken.
  static constexpr size_t kMaxAlternatives = 1024;

  // `tables` must outlive it.
  explicit TagMatcher(const TagTables& tables);

  std::unique_ptr<ByteMatcher> clone() const override;
  bool push(uint8_t byte) override;
  void pop(size_t count) override;
  void commit() override;
  bool can_end() const override { return newest().is_end; }
  bool must_end() const override { return newest().is_end && newest().alternatives.empty(); }
  std::string ending() const override;
  size_t ending_bytes() const override;
  void forget_ending() override {
    for (Run& run : runs_) run.matcher->forget_ending();
  }
  size_t allow_tokens(const TokenTrie& trie, size_t most_ending_bytes, TokenMask mask) override;

 private:
  enum class Kind : uint8_t { kFreeText, kSeparator, kBegin, kInner, kEnd };
  struct Alternative {
    Kind kind;
    uint32_t count;    // tags before
    int32_t at;        // a state, bytes that are read, a node, a run, bytes that are read
    int32_t tag = -1;  // of an inner text or end
    bool operator==(const Alternative&) const = default;
  };
  // An inner text that has begun.
  struct Run {
    std::unique_ptr<ByteMatcher> matcher;
    int32_t tag;
  };
  struct Place {
    std::vector<Alternative> alternatives;
    std::vector<int32_t> pushed;                      // the runs that took its byte
    std::vector<std::pair<int32_t, uint32_t>> begun;  // nodes and counts whose runs have begun here
    size_t num_runs = 0;                              // that have begun up to here
    bool is_end = false;
  };

  TagMatcher(const TagMatcher& other);

  const Place& newest() const { return places_[num_places_ - 1]; }
  Place& add_place();
  void take(const Alternative& from, uint8_t byte, Place& place);
  static void add(Place& place, const Alternative& alternative);
  void add_free_text(Place& place, int32_t state, uint32_t count);
  void add_begin(Place& place, int32_t node, uint32_t count);
  void add_inner(Place& place, int32_t run, int32_t tag, uint32_t count);
  void add_end(Place& place, int32_t tag, int32_t taken, uint32_t count);
  // Behind `count` tags.
  void add_next(Place& place, uint32_t count);
  void drop_long_ways(Place& place) const;

  size_t bytes_of(const Alternative& alternative) const;
  std::string ending_of(const Alternative& alternative) const;
  const ByteMatcher& inner(const Alternative& alternative) const {
    return *runs_[static_cast<size_t>(alternative.at)].matcher;
  }
  // Bytes behind the inner text of an alternative.
  size_t bytes_behind_inner(const Alternative& alternative) const;

  size_t allow_free_text(const Alternative& from, const TokenTrie& trie, size_t most,
                         TokenMask mask);
  size_t allow_inner(const Alternative& from, const TokenTrie& trie, size_t most, TokenMask mask);
  // The nodes of the trie at which a byte may come that ends the inner text of `from`.
  std::vector<uint32_t> inner_ends(const Alternative& from, const TokenTrie& trie);
  // A place for these alone, until pop(1).
  void push_only(const std::vector<Alternative>& alternatives);

  const TagTables* tables_;
  // Those behind num_places_ are kept for their memory.
  std::vector<Place> places_;
  size_t num_places_ = 0;
  std::vector<Run> runs_;
};

}  // namespace quire::grammar
