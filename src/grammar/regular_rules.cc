#include "grammar/regular_rules.h"

#include <algorithm>
#include <optional>

#include "grammar/nfa.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

using Symbol = ContextFreeGrammar::Symbol;

constexpr size_t kMaxRuleStates = 20'000;  // of the automaton with choices, of one rule
constexpr size_t kMaxAllStates = 400'000;  // of all of them
constexpr size_t kMaxRuleBytes = size_t{4} << 20;
constexpr int kMaxFolds = 2'000;  // of rules within rules
constexpr int kMaxFailures = 8;

enum class Recursion : uint8_t { kNone, kLeft, kRight, kOther };

class RuleFolder {
 public:
  RuleFolder(ContextFreeGrammar& grammar, Budget& budget)
      : grammar_(grammar),
        budget_(budget),
        recursion_(grammar.names.size()),
        is_regular_(grammar.names.size()),
        dfas_(grammar.names.size()),
        is_used_(grammar.names.size()) {}

  void run() {
    find_regular_rules();
    use(grammar_.root);
    if (DfaPtr dfa = dfas_[to_size(grammar_.root)]) {
      grammar_.of_rule[to_size(grammar_.root)].clear();
      grammar_.add_production(grammar_.root, {{-1, dfa}}, budget_);
    }
    while (!todo_.empty()) {
      const int rule = todo_.back();
      todo_.pop_back();
      for (const int number : grammar_.of_rule[to_size(rule)]) {
        for (Symbol& symbol : grammar_.productions[to_size(number)].symbols) {
          budget_.step();
          if (symbol.rule < 0) continue;
          use(symbol.rule);
          if (DfaPtr dfa = dfas_[to_size(symbol.rule)]) symbol = {-1, dfa};
        }
      }
    }
    for (size_t rule = 0; rule < is_used_.size(); ++rule) {
      const bool is_root = rule == to_size(grammar_.root);
      if (!is_used_[rule] || (dfas_[rule] != nullptr && !is_root)) grammar_.of_rule[rule].clear();
    }
  }

 private:
  static size_t to_size(int i) { return static_cast<size_t>(i); }
  const std::vector<Symbol>& symbols_of(int production) const {
    return grammar_.productions[to_size(production)].symbols;
  }

  Recursion recursion_of(int rule) const {
    Recursion found = Recursion::kNone;
    for (const int number : grammar_.of_rule[to_size(rule)]) {
      const std::vector<Symbol>& symbols = symbols_of(number);
      for (size_t i = 0; i < symbols.size(); ++i) {
        if (symbols[i].rule != rule || symbols.size() == 1) continue;
        const Recursion here = i == 0                    ? Recursion::kLeft
                               : i + 1 == symbols.size() ? Recursion::kRight
                                                         : Recursion::kOther;
        if (found != Recursion::kNone && found != here) return Recursion::kOther;
        if (here == Recursion::kLeft && symbols.back().rule == rule) return Recursion::kOther;
        found = here;
      }
    }
    return found;
  }

  // Those that use only themselves, at one end, and regular rules.
  void find_regular_rules() {
    const size_t num_rules = grammar_.names.size();
    std::vector<size_t> missing(num_rules);
    std::vector<std::vector<int>> users(num_rules);
    std::vector<int> ready;
    for (size_t rule = 0; rule < num_rules; ++rule) {
      for (const int number : grammar_.of_rule[rule]) {
        for (const Symbol& symbol : symbols_of(number)) {
          budget_.step();
          if (symbol.rule < 0 || to_size(symbol.rule) == rule) continue;
          ++missing[rule];
          users[to_size(symbol.rule)].push_back(static_cast<int>(rule));
        }
      }
      recursion_[rule] = recursion_of(static_cast<int>(rule));
      if (missing[rule] == 0) ready.push_back(static_cast<int>(rule));
    }
    while (!ready.empty()) {
      const int rule = ready.back();
      ready.pop_back();
      if (recursion_[to_size(rule)] == Recursion::kOther) continue;
      is_regular_[to_size(rule)] = true;
      for (const int user : users[to_size(rule)]) {
        budget_.step();
        if (--missing[to_size(user)] == 0) ready.push_back(user);
      }
    }
  }

  // Makes an automaton of a rule that is used, or keeps it as one.
  void use(int rule) {
    if (is_used_[to_size(rule)]) return;
    is_used_[to_size(rule)] = true;
    if (is_regular_[to_size(rule)] && num_failures_ < kMaxFailures) {
      dfas_[to_size(rule)] = fold(rule);
      if (dfas_[to_size(rule)] != nullptr) return;
      ++num_failures_;
    }
    todo_.push_back(rule);
  }

  DfaPtr fold(int rule) {
    Nfa nfa;
    const std::optional<int32_t> begin = add_rule(nfa, rule, nfa.accept(), 0);
    num_states_ += nfa.size();
    if (!begin) return nullptr;
    CompileLimits limits = budget_.limits();
    limits.memory_bytes = std::min(limits.memory_bytes, kMaxRuleBytes);
    Budget small(limits);
    DfaPtr dfa;
    try {
      dfa = nfa.determinise(*begin, small);
    } catch (const Error&) {
      // Too large; the time is looked at again with the budget of the whole.
      budget_.check_time();
      return nullptr;
    }
    budget_.take(dfa->table().next.size() * sizeof(int32_t) + sizeof(Dfa));
    return dfa;
  }

  // A state from which a text of the rule leads to `next`, unless that takes too many states.
  std::optional<int32_t> add_rule(Nfa& nfa, int rule, int32_t next, int depth) {
    if (depth > kMaxFolds) return {};
    const Recursion recursion = recursion_[to_size(rule)];
    const int32_t begin = nfa.add_state();
    // Left: what is repeated comes behind the rest; right: before.
    int32_t behind = next;
    if (recursion == Recursion::kLeft) {
      behind = nfa.add_state();
      nfa.add_epsilon(behind, Nfa::Epsilon::kAlways, next);
    }
    for (const int number : grammar_.of_rule[to_size(rule)]) {
      const std::vector<Symbol>& symbols = symbols_of(number);
      size_t first = 0;
      size_t last = symbols.size();
      int32_t from = begin;
      int32_t to = behind;
      if (!symbols.empty() && symbols.front().rule == rule) {
        first = 1;
        from = behind;
      } else if (!symbols.empty() && symbols.back().rule == rule) {
        --last;
        to = begin;
      }
      if (first == last && !symbols.empty()) continue;  // the rule alone
      for (size_t i = last; i > first; --i) {
        const std::optional<int32_t> state = add_symbol(nfa, symbols[i - 1], to, depth);
        if (!state) return {};
        to = *state;
      }
      nfa.add_epsilon(from, Nfa::Epsilon::kAlways, to);
    }
    return begin;
  }

  std::optional<int32_t> add_symbol(Nfa& nfa, const Symbol& symbol, int32_t next, int depth) {
    budget_.step();
    const size_t more = symbol.rule >= 0 ? 1 : to_size(symbol.text->num_states());
    if (nfa.size() + more > kMaxRuleStates) return {};
    if (num_states_ + nfa.size() + more > kMaxAllStates) return {};
    return symbol.rule >= 0 ? add_rule(nfa, symbol.rule, next, depth + 1)
                            : nfa.add_dfa(*symbol.text, next);
  }

  ContextFreeGrammar& grammar_;
  Budget& budget_;
  std::vector<Recursion> recursion_;
  std::vector<bool> is_regular_;
  std::vector<DfaPtr> dfas_;
  std::vector<bool> is_used_;
  std::vector<int> todo_;
  size_t num_states_ = 0;
  int num_failures_ = 0;
};

}  // namespace

void fold_regular_rules(ContextFreeGrammar& grammar, Budget& budget) {
  RuleFolder(grammar, budget).run();
}

}  // namespace quire::grammar
