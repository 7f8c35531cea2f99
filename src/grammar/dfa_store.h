#pragma once
// The automata of one grammar and their combinations, each made once.
//
// Thread safety: one thread at a time.
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

class DfaStore {
 public:
  static constexpr int kAll = -1;  // the number of the language of everything

  // `universe` makes the automaton of all texts, when a complement first needs it. `budget` must
  // live until finish().
  DfaStore(Budget& budget, DfaPtr (*universe)(Budget&))
      : budget_(&budget), make_universe_(universe) {}

  // The number of the automaton for `key`; `make` is called only for a new key.
  int get(const std::string& key, const std::function<DfaPtr()>& make);
  int add(DfaPtr dfa);
  int both(int a, int b);
  int complement(int a);
  bool is_empty(int a) const { return a != kAll && at(a).is_empty(); }
  bool matches(int a, std::string_view text) const { return a == kAll || at(a).matches(text); }
  const Dfa& at(int number) const { return *dfas_[static_cast<size_t>(number)]; }
  const Dfa::Lengths& lengths(int number);
  // Frees everything except the automata; from then on the store is only read.
  void finish();

 private:
  Budget* budget_;
  DfaPtr (*make_universe_)(Budget&);
  int universe_ = kAll;
  std::vector<DfaPtr> dfas_;
  std::unordered_map<std::string, int> by_key_;
  std::map<std::pair<int, int>, int> both_;
  std::unordered_map<int, int> complements_;
  std::unordered_map<int, Dfa::Lengths> lengths_;
};

// Which of the automata can match one text together: bit i of an element stands for numbers[i].
// Throws Error where finding out takes too many states. At most 63 automata.
std::vector<uint64_t> matching_sets(const DfaStore& store, const std::vector<int>& numbers,
                                    Budget& budget);

}  // namespace quire::grammar
