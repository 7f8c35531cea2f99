#pragma once
// Context-free grammars over bytes, and Earley's algorithm, which reads any of them.
//
// Thread safety: a grammar is immutable once finished; a matcher is for one thread at a time.
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

struct ContextFreeGrammar {
  struct Symbol {
    int rule = -1;     // or, below 0:
    DfaPtr text = {};  // what has to be there
  };
  struct Production {
    int rule = 0;
    std::vector<Symbol> symbols;
  };

  std::vector<std::string> names;  // of the rules; of parts of one: its name
  std::vector<Production> productions;
  std::vector<std::vector<int>> of_rule;  // the productions of each rule
  std::vector<bool> can_be_empty;
  int root = 0;

  int add_rule(std::string name);
  void add_production(int rule, std::vector<Symbol> symbols, Budget& budget);
  // Removes rules that can never end, turns regular rules into automata and finds the rules that
  // can be empty. Throws Error if nothing is left.
  void finish(Budget& budget);
  // The automaton of a whole finished grammar, if it is a single one.
  DfaPtr text() const;
};

class EarleyMatcher {
 public:
  // Limits of one text. Ambiguous grammars take the square of its length in items, its cube in
  // steps.
  static constexpr size_t kMaxItems = 4'000'000;
  static constexpr size_t kMaxSteps = 30'000'000;

  // `grammar` must outlive it.
  explicit EarleyMatcher(const ContextFreeGrammar& grammar);

  // Takes a byte; false if no text of the grammar begins like this, or if the text takes more than
  // kMaxItems or kMaxSteps.
  bool advance(uint8_t byte);
  bool can_end() const;

 private:
  struct Item {
    int32_t production;
    int32_t dot;                                    // how many symbols have been read
    int32_t origin;                                 // the place at which the production begins
    int32_t state;                                  // of the automaton at the dot
    auto operator<=>(const Item&) const = default;  // NOLINT(modernize-use-nullptr)
  };

  void add(int32_t production, int32_t dot, int32_t origin);
  void add_item(const Item& item);
  void predict(int rule);
  void complete(int rule, int32_t origin);
  // The rule that an item waits for, -1 for text.
  int awaited(const Item& item) const;
  // Adds the items that follow from those of the newest place.
  void close();

  const ContextFreeGrammar* grammar_;
  std::vector<std::vector<Item>> places_;
  std::vector<Item> items_;       // of the newest place, all
  std::vector<uint64_t> hashes_;  // an open hash table of items_: round and index
  std::vector<bool> predicted_;
  size_t num_items_ = 0;
  size_t num_steps_ = 0;
  bool accepted_ = false;
  bool failed_ = false;
};

}  // namespace quire::grammar
