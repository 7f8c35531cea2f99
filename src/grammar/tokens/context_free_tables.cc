#include "grammar/tokens/context_free_tables.h"

#include <fmt/format.h>

#include <map>
#include <queue>
#include <unordered_map>
#include <utility>

#include "grammar/tokens/next_bytes.h"
#include "quire/error.h"

namespace quire::grammar {

ContextFreeTables::ContextFreeTables(const ContextFreeGrammar& grammar, Budget& budget)
    : beginnings_(grammar.names.size()),
      ends_(grammar.names.size()),
      fewest_(grammar.names.size(), SIZE_MAX),
      shortest_(grammar.names.size(), -1),
      root_(grammar.root) {
  add_spots(grammar, budget);
  find_shortest(budget);
  for (size_t i = spots_.size(); i-- > 0;) {
    Spot& spot = spots_[i];
    if (spot.rule == kEnd) continue;
    const size_t first = spot.rule >= 0 ? fewest_bytes(spot.rule)
                                        : endings(spot.text).distance(dfa(spot.text).start());
    spot.rest = spots_[i + 1].rest + first;
    if (spot.rest > kMostEndingBytes) {
      throw Error(fmt::format("the shortest text of the rule {} is longer than {} bytes",
                              grammar.names[static_cast<size_t>(spot.owner)], kMostEndingBytes));
    }
  }
  find_uses(budget);
}

void ContextFreeTables::find_uses(Budget& budget) {
  const std::vector<DfaMasks::Bytes> next = find_next_bytes(*this, budget);
  std::map<std::pair<int32_t, std::string>, uint32_t> numbers;
  for (size_t i = 0; i < spots_.size(); ++i) {
    budget.step();
    if (spots_[i].rule != kText) continue;
    const auto [found, is_new] = numbers.try_emplace({spots_[i].text, next[i].to_string()},
                                                     static_cast<uint32_t>(uses_.size()));
    if (is_new) {
      budget.take(sizeof(DfaMasks::Bytes));
      uses_.push_back(next[i]);
    }
    spots_[i].use = found->second;
  }
}

void ContextFreeTables::add_spots(const ContextFreeGrammar& grammar, Budget& budget) {
  std::unordered_map<const Dfa*, int32_t> numbers;
  for (size_t rule = 0; rule < grammar.names.size(); ++rule) {
    for (const int number : grammar.of_rule[rule]) {
      const auto& symbols = grammar.productions[static_cast<size_t>(number)].symbols;
      budget.step();
      budget.take((symbols.size() + 1) * sizeof(Spot) + sizeof(int32_t));
      beginnings_[rule].push_back(static_cast<int32_t>(spots_.size()));
      const auto owner = static_cast<int32_t>(rule);
      for (const ContextFreeGrammar::Symbol& symbol : symbols) {
        if (symbol.rule >= 0) {
          spots_.push_back(
              {.rule = symbol.rule,
               .owner = owner,
               .can_be_empty = grammar.can_be_empty[static_cast<size_t>(symbol.rule)]});
          continue;
        }
        const auto [found, is_new] =
            numbers.try_emplace(symbol.text.get(), static_cast<int32_t>(dfas_.size()));
        if (is_new) {
          dfas_.push_back(symbol.text);
          endings_.emplace_back(*symbol.text, budget);
        }
        spots_.push_back({.rule = kText, .owner = owner, .text = found->second});
      }
      if (number == grammar.of_rule[rule].front()) {
        ends_[rule] = static_cast<int32_t>(spots_.size());
      }
      spots_.push_back({.rule = kEnd, .owner = owner});
    }
  }
}

// Knuth's generalisation of Dijkstra's algorithm: rules are settled from the shortest text upward.
void ContextFreeTables::find_shortest(Budget& budget) {
  struct Open {
    size_t missing = 0;  // rules in the production that are not settled, as often as they are there
    size_t bytes = 0;    // of what is
    int32_t owner = 0;
    int32_t begin = 0;
  };
  std::vector<Open> open;
  std::vector<std::vector<size_t>> users(beginnings_.size());  // the productions, as often
  using Candidate = std::pair<size_t, size_t>;                 // bytes, and the production
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  for (const std::vector<int32_t>& of_rule : beginnings_) {
    for (const int32_t begin : of_rule) {
      Open production{.owner = spot(begin).owner, .begin = begin};
      for (int32_t i = begin; spot(i).rule != kEnd; ++i) {
        budget.step();
        if (spot(i).rule >= 0) {
          ++production.missing;
          users[static_cast<size_t>(spot(i).rule)].push_back(open.size());
        } else {
          production.bytes += endings(spot(i).text).distance(dfa(spot(i).text).start());
        }
      }
      if (production.missing == 0) candidates.emplace(production.bytes, open.size());
      open.push_back(production);
    }
  }
  while (!candidates.empty()) {
    const auto [bytes, number] = candidates.top();
    candidates.pop();
    const auto rule = static_cast<size_t>(open[number].owner);
    if (shortest_[rule] >= 0) continue;
    shortest_[rule] = open[number].begin;
    fewest_[rule] = bytes;
    for (const size_t user : users[rule]) {
      budget.step();
      // Lengths double from rule to rule: beyond the limit they only have to stay there.
      open[user].bytes = std::min(open[user].bytes + bytes, 2 * kMostEndingBytes);
      if (--open[user].missing == 0) candidates.emplace(open[user].bytes, user);
    }
  }
}

void ContextFreeTables::append_rest(int32_t spot_number, std::string& out) const {
  std::vector<int32_t> open = {spot_number};
  while (!open.empty()) {
    const Spot& at = spot(open.back());
    if (at.rule == kEnd) {
      open.pop_back();
      continue;
    }
    ++open.back();
    if (at.rule >= 0) {
      open.push_back(shortest_[static_cast<size_t>(at.rule)]);
    } else {
      endings(at.text).append(dfa(at.text).start(), out);
    }
  }
}

}  // namespace quire::grammar
