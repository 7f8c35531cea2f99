// What JsonCompletion finds out about goals once: their automata, and what is left out.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "grammar/nfa.h"
#include "grammar/regex.h"
#include "grammar/tokens/json_completion.h"
#include "quire/error.h"

namespace quire::grammar {

// Automata with what generation needs of them, each made once.
class JsonCompletion::Dfas {
 public:
  // The most characters that states are made for.
  static constexpr uint64_t kMaxCountedLength = 2000;

  Dfas(const JsonGrammar& grammar, Budget& budget) : grammar_(grammar), budget_(budget) {}

  Budget& budget() { return budget_; }
  EscapedDfaPtr number(int dfa) {
    EscapedDfaPtr& made = numbers_[dfa];
    if (!made) {
      made = std::make_shared<EscapedDfa>(std::make_shared<Dfa>(grammar_.numbers.at(dfa)), budget_);
    }
    return made;
  }
  // Without an automaton if that takes too many states, or no text has such a length.
  StringTarget string(const StringAlternative& from) {
    const Counted& counted = at_least(from.dfa, from.min_length);
    if (!counted.dfa || counted.fewest > from.max_length) return {};
    if (from.max_length == UINT64_MAX || counted.most <= from.max_length) {
      return {0, escaped(counted.dfa, EscapedDfa::Shortest::kBytes)};
    }
    // An upper limit needs no states of its own: it is enough to know the fewest characters.
    return {0, escaped(counted.dfa, EscapedDfa::Shortest::kCharacters), 0, from.max_length};
  }
  // The names that match sets of patterns for which `allowed` holds; null: none.
  template <typename Allowed>
  EscapedDfaPtr names(const ObjectAlternative& object, const Allowed& allowed) {
    DfaPtr all;
    for (const auto& [matches, goals] : object.others) {
      if (!allowed(goals)) continue;
      DfaPtr names = utf8_dfa(budget_);
      for (size_t i = 0; i < object.patterns.size(); ++i) {
        const Dfa& pattern = grammar_.strings.at(object.patterns[i]);
        const Combine how = (matches >> i & 1) != 0 ? Combine::kBoth : Combine::kFirstOnly;
        names = combine(*names, pattern, how, budget_);
        if (names->is_empty()) break;
      }
      if (names->is_empty()) continue;
      all = all ? combine(*all, *names, Combine::kEither, budget_) : names;
    }
    return all && !all->is_empty() ? std::make_shared<EscapedDfa>(all, budget_) : nullptr;
  }

 private:
  // An automaton, null: none, and how many characters its texts have.
  struct Counted {
    DfaPtr dfa = nullptr;
    uint64_t fewest = 0;
    uint64_t most = 0;  // Dfa::kUnbounded: no limit
  };

  EscapedDfaPtr escaped(const DfaPtr& dfa, EscapedDfa::Shortest shortest) {
    EscapedDfaPtr& made = escaped_[{dfa.get(), shortest}];
    if (!made) made = std::make_shared<EscapedDfa>(dfa, budget_, shortest);
    return made;
  }
  // The texts of an automaton with at least so many characters.
  const Counted& at_least(int dfa, uint64_t min_length) {
    const auto [found, is_new] = counted_.try_emplace({dfa, min_length});
    Counted& made = found->second;
    if (!is_new) return made;
    if (min_length == 0) {
      made.dfa = std::make_shared<Dfa>(grammar_.strings.at(dfa));
    } else {
      const Counted& all = at_least(dfa, 0);
      if (min_length <= all.fewest) return made = all;
      if (min_length > kMaxCountedLength || min_length > all.most) return made;
      made.dfa = combine(*all.dfa, long_texts(min_length), Combine::kBoth, budget_);
      if (made.dfa->is_empty()) made.dfa = nullptr;
    }
    if (!made.dfa) return made;
    const Dfa::Lengths lengths = made.dfa->lengths();
    made.fewest = lengths.fewest[0];
    made.most = lengths.most[0];
    return made;
  }
  // All texts of at least so many characters.
  const Dfa& long_texts(uint64_t min_length) {
    DfaPtr& made = long_texts_[min_length];
    if (made) return *made;
    Nfa nfa;
    int32_t next = nfa.add_state();
    nfa.add_epsilon(next, Nfa::Epsilon::kAlways, nfa.accept());
    nfa.add_epsilon(next, Nfa::Epsilon::kAlways, nfa.add_characters({{0, 0x10FFFF}}, next));
    for (uint64_t length = min_length; length-- > 0;) {
      const int32_t character = nfa.add_characters({{0, 0x10FFFF}}, next);
      next = nfa.add_state();
      nfa.add_epsilon(next, Nfa::Epsilon::kAlways, character);
    }
    made = nfa.determinise(next, budget_);
    return *made;
  }

  const JsonGrammar& grammar_;
  Budget& budget_;
  std::map<int, EscapedDfaPtr> numbers_;
  std::map<std::pair<int, uint64_t>, Counted> counted_;
  std::map<std::pair<const Dfa*, EscapedDfa::Shortest>, EscapedDfaPtr> escaped_;
  std::map<uint64_t, DfaPtr> long_texts_;
};

JsonCompletion::JsonCompletion(const JsonGrammar& grammar, Budget& budget) : grammar_(grammar) {
  Dfas dfas(grammar, budget);
  gather(dfas);
  find_distinct_values();
  find_costs(budget);
  while (leave_out_others(dfas)) find_costs(budget);
}

void JsonCompletion::leave_out(std::string_view what) {
  if (left_out_.find(what) != std::string::npos) return;
  if (!left_out_.empty()) left_out_ += ", ";
  left_out_ += what;
}

void JsonCompletion::gather(Dfas& dfas) {
  facts_.resize(grammar_.goals.size());
  for (size_t i = 0; i < facts_.size(); ++i) {
    dfas.budget().step();
    const JsonGoal& from = grammar_.goals[i];
    for (const int number : from.numbers) {
      const EscapedDfaPtr dfa = number == DfaStore::kAll ? nullptr : dfas.number(number);
      if (dfa && dfa->distance(0) > NumberLexer::kMaxBytes) {
        leave_out("numbers of more than 300 digits");
      } else {
        facts_[i].numbers.push_back({0, dfa});
      }
    }
    gather_strings(from, facts_[i], dfas);
    for (const ArrayAlternative& array : from.arrays) {
      ArrayFacts facts;
      facts.is_unique = array.repeats == ArrayAlternative::Repeats::kForbidden;
      facts.is_possible = array.repeats != ArrayAlternative::Repeats::kNeeded &&
                          !(facts.is_unique && !array.witnesses.empty());
      if (!facts.is_possible) leave_out("items that repeat, or contains beside uniqueItems");
      facts_[i].arrays.push_back(facts);
    }
    gather_objects(from, facts_[i], dfas);
  }
}

void JsonCompletion::gather_strings(const JsonGoal& from, GoalFacts& to, Dfas& dfas) {
  constexpr uint64_t kMaxLimitedLength = 65'536;
  for (const StringAlternative& strings : from.strings) {
    if (strings.min_length > kMost) {
      leave_out("a minLength of more than 262144");
    } else if (strings.dfa == DfaStore::kAll) {
      // Each length has a state of its own where there is a limit.
      const uint64_t longest = strings.max_length == UINT64_MAX
                                   ? UINT64_MAX
                                   : std::min(strings.max_length, kMaxLimitedLength);
      if (strings.min_length <= longest) {
        to.strings.push_back({0, nullptr, strings.min_length, longest});
      } else {
        leave_out("a maxLength with a minLength of more than 65536");
      }
    } else if (const StringTarget target = dfas.string(strings); target.dfa != nullptr) {
      to.strings.push_back(target);
    } else if (strings.min_length > Dfas::kMaxCountedLength) {
      leave_out("a pattern or format together with a minLength beyond 2000");
    } else {
      leave_out("a pattern or format that no text of such a length has");
    }
  }
}

void JsonCompletion::gather_objects(const JsonGoal& from, GoalFacts& to, Dfas& dfas) {
  constexpr size_t kMaxKindsOfNames = 16;
  for (const ObjectAlternative& object : from.objects) {
    ObjectFacts facts;
    for (size_t i = 0; i < object.names.size(); ++i) {
      facts.spelled.push_back(to_json_string(object.names[i].name));
      if (object.names[i].is_required) facts.required.push_back(static_cast<uint32_t>(i));
    }
    facts.is_simple = object.min_properties == 0 && object.max_properties == UINT64_MAX &&
                      object.dependent_required.empty() && object.num_witnesses == 0;
    const bool is_open = !object.others.empty();
    if (is_open && (object.patterns.empty() ||
                    object.others.size() ==
                        matching_sets(grammar_.strings, object.patterns, dfas.budget()).size())) {
      facts.any_others = true;
    } else if (is_open && object.others.size() <= kMaxKindsOfNames) {
      facts.others = dfas.names(object, [](const ChildGoals&) { return true; });
    } else if (is_open) {
      leave_out("names that patternProperties combine in more than 16 ways");
    }
    to.objects.push_back(std::move(facts));
  }
}

void JsonCompletion::find_costs(Budget& budget) {
  for (GoalFacts& facts : facts_) facts.cost = kNever;
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t i = facts_.size(); i-- > 0;) {
      budget.step();
      const uint32_t cost = find_cost(static_cast<int>(i));
      if (cost >= facts_[i].cost) continue;
      facts_[i].cost = cost;
      has_changed = true;
    }
  }
  // Few members come before few bytes, so that with shorter values another choice of members may
  // have become longer: a bound has to hold for the choice that is made in the end.
  constexpr int kMaxPasses = 64;
  bool has_grown = true;
  for (int pass = 0; pass < kMaxPasses && has_grown; ++pass) {
    has_grown = false;
    for (size_t i = 0; i < facts_.size(); ++i) {
      budget.step();
      if (facts_[i].cost == kNever) continue;
      const uint32_t cost = find_cost(static_cast<int>(i));
      has_grown |= cost > facts_[i].cost;
      facts_[i].cost = std::max(facts_[i].cost, cost);
    }
  }
}

// Members that are not listed and whose values cannot be generated do not come. Whether there were
// such.
bool JsonCompletion::leave_out_others(Dfas& dfas) {
  bool has_changed = false;
  const auto can_come = [&](const ChildGoals& goals) {
    return std::ranges::any_of(goals, [&](int goal) { return cost(goal) != kNever; });
  };
  for (size_t i = 0; i < facts_.size(); ++i) {
    for (size_t j = 0; j < facts_[i].objects.size(); ++j) {
      const auto& others = grammar_.goals[i].objects[j].others;
      ObjectFacts& facts = facts_[i].objects[j];
      const bool all_can =
          std::ranges::all_of(others, [&](const auto& other) { return can_come(other.second); });
      if (all_can || facts.leaves_out_others || !(facts.any_others || facts.others)) continue;
      facts.leaves_out_others = true;
      facts.any_others = false;
      facts.others = dfas.names(grammar_.goals[i].objects[j], can_come);
      has_changed = true;
    }
  }
  return has_changed;
}

}  // namespace quire::grammar
