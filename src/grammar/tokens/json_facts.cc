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
  Dfas(const JsonGrammar& grammar, Budget& budget) : grammar_(grammar), budget_(budget) {}

  Budget& budget() { return budget_; }
  EscapedDfaPtr number(int dfa) { return get(numbers_, grammar_.numbers, dfa); }
  EscapedDfaPtr string(int dfa) { return get(strings_, grammar_.strings, dfa); }

  // Without an automaton if that takes too many states.
  StringTarget string(const StringAlternative& from) {
    const EscapedDfaPtr all = string(from.dfa);
    const Dfa::Lengths lengths = all->dfa().lengths();
    if (lengths.fewest[0] < from.min_length) return {0, with_lengths(from, *all)};
    if (from.max_length == UINT64_MAX || lengths.most[0] <= from.max_length) return {0, all};
    // An upper limit needs no states of its own: it is enough to know the fewest characters.
    EscapedDfaPtr& short_ones = by_characters_[from.dfa];
    if (!short_ones) {
      short_ones = std::make_shared<EscapedDfa>(std::make_shared<Dfa>(all->dfa()), budget_,
                                                EscapedDfa::Shortest::kCharacters);
    }
    return {0, short_ones, 0, from.max_length};
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
  static constexpr uint64_t kMaxCountedLength = 2000;

  EscapedDfaPtr get(std::map<int, EscapedDfaPtr>& made, const DfaStore& store, int dfa) {
    const auto found = made.find(dfa);
    if (found != made.end()) return found->second;
    const DfaPtr copy = std::make_shared<Dfa>(store.at(dfa));
    return made.emplace(dfa, std::make_shared<EscapedDfa>(copy, budget_)).first->second;
  }
  EscapedDfaPtr with_lengths(const StringAlternative& from, const EscapedDfa& all) {
    const auto key = std::make_tuple(from.dfa, from.min_length, from.max_length);
    const auto found = with_lengths_.find(key);
    if (found != with_lengths_.end()) return found->second;
    EscapedDfaPtr made = nullptr;
    const uint64_t longest = from.max_length == UINT64_MAX ? from.min_length : from.max_length;
    if (longest <= kMaxCountedLength) {
      const DfaPtr both = combine(all.dfa(), *lengths_dfa(from), Combine::kBoth, budget_);
      if (!both->is_empty()) made = std::make_shared<EscapedDfa>(both, budget_);
    }
    with_lengths_.emplace(key, made);
    return made;
  }
  // All texts of these lengths.
  DfaPtr lengths_dfa(const StringAlternative& from) {
    Nfa nfa;
    const uint64_t longest = from.max_length == UINT64_MAX ? from.min_length : from.max_length;
    int32_t next = nfa.accept();
    if (from.max_length == UINT64_MAX) {
      next = nfa.add_state();
      nfa.add_epsilon(next, Nfa::Epsilon::kAlways, nfa.accept());
      nfa.add_epsilon(next, Nfa::Epsilon::kAlways, nfa.add_characters({{0, 0x10FFFF}}, next));
    }
    for (uint64_t length = longest; length-- > 0;) {
      const int32_t character = nfa.add_characters({{0, 0x10FFFF}}, next);
      next = nfa.add_state();
      nfa.add_epsilon(next, Nfa::Epsilon::kAlways, character);
      if (length >= from.min_length) nfa.add_epsilon(next, Nfa::Epsilon::kAlways, nfa.accept());
    }
    return nfa.determinise(next, budget_);
  }

  const JsonGrammar& grammar_;
  Budget& budget_;
  std::map<int, EscapedDfaPtr> numbers_;
  std::map<int, EscapedDfaPtr> strings_;
  std::map<int, EscapedDfaPtr> by_characters_;
  std::map<std::tuple<int, uint64_t, uint64_t>, EscapedDfaPtr> with_lengths_;
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
    } else {
      leave_out("a pattern or format together with a minLength and lengths beyond 2000");
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
