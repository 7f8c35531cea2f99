#pragma once
// A context-free grammar as tables for generation: the places between the symbols of its
// productions, and the shortest texts of what follows them.
//
// Thread safety: immutable once made, but for masks, which are locked.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/context_free.h"
#include "grammar/tokens/dfa_endings.h"
#include "grammar/tokens/dfa_masks.h"
#include "grammar/tokens/place_masks.h"

namespace quire::grammar {

class ContextFreeTables {
 public:
  // Endings that are longer would be none.
  static constexpr size_t kMostEndingBytes = size_t{1} << 20;

  static constexpr int32_t kText = -1;
  static constexpr int32_t kEnd = -2;

  // A place in a production, before a symbol or at the end. The place after it has the next number.
  struct Spot {
    int32_t rule = kEnd;        // which is awaited here; kText, kEnd
    int32_t owner = 0;          // the production's rule
    int32_t text = -1;          // the number of the automaton that is awaited,
    uint32_t use = 0;           // and of it with what may follow
    bool can_be_empty = false;  // the rule
    size_t rest = 0;            // the fewest bytes from here to the end of the production
  };

  // `grammar` is finished, and must outlive it. Throws Error for a rule without short texts.
  ContextFreeTables(const ContextFreeGrammar& grammar, Budget& budget);

  const Spot& spot(int32_t i) const { return spots_[static_cast<size_t>(i)]; }
  // The spot behind a rule's first production, which stands for those behind all of them.
  int32_t end_of(int32_t rule) const { return ends_[static_cast<size_t>(rule)]; }
  // Where the productions of a rule begin.
  const std::vector<int32_t>& beginnings(int32_t rule) const {
    return beginnings_[static_cast<size_t>(rule)];
  }
  const Dfa& dfa(int32_t text) const { return *dfas_[static_cast<size_t>(text)]; }
  const DfaEndings& endings(int32_t text) const { return endings_[static_cast<size_t>(text)]; }
  size_t num_spots() const { return spots_.size(); }
  int32_t num_texts() const { return static_cast<int32_t>(dfas_.size()); }
  // The masks of an awaited automaton in a state; its exits are the nodes behind it.
  DfaMasks::MasksPtr masks(const Spot& spot, int32_t state, const TokenTrie& trie) const {
    return masks_.get(dfa(spot.text), state, trie, spot.use, uses_[spot.use]);
  }
  PlaceMasks& place_masks() const { return place_masks_; }
  // Of all masks that are kept.
  size_t learnt_bytes() const { return masks_.bytes() + place_masks_.bytes(); }
  int32_t num_rules() const { return static_cast<int32_t>(beginnings_.size()); }
  int32_t root() const { return root_; }

  // The fewest bytes of a text of the rule.
  size_t fewest_bytes(int32_t rule) const { return fewest_[static_cast<size_t>(rule)]; }
  // Appends the shortest text from the spot to the end of its production.
  void append_rest(int32_t spot, std::string& out) const;
  // Appends the shortest text of the rule.
  void append_shortest(int32_t rule, std::string& out) const {
    append_rest(shortest_[static_cast<size_t>(rule)], out);
  }

 private:
  void add_spots(const ContextFreeGrammar& grammar, Budget& budget);
  void find_shortest(Budget& budget);
  void find_uses(Budget& budget);

  std::vector<Spot> spots_;
  std::vector<std::vector<int32_t>> beginnings_;
  std::vector<int32_t> ends_;  // by rule
  std::vector<DfaPtr> dfas_;
  std::vector<DfaEndings> endings_;
  std::vector<size_t> fewest_;
  std::vector<int32_t> shortest_;  // where the production of each rule's shortest text begins
  int32_t root_;
  std::vector<DfaMasks::Bytes> uses_;  // for each the bytes that may follow
  mutable DfaMasks masks_;
  mutable PlaceMasks place_masks_;
};

}  // namespace quire::grammar
