#include "grammar/dfa_store.h"

#include <set>
#include <utility>

#include "quire/error.h"

namespace quire::grammar {

int DfaStore::add(DfaPtr dfa) {
  dfas_.push_back(std::move(dfa));
  return static_cast<int>(dfas_.size()) - 1;
}

int DfaStore::get(const std::string& key, const std::function<DfaPtr()>& make) {
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) return found->second;
  const int number = add(make());
  by_key_.emplace(key, number);
  return number;
}

int DfaStore::both(int a, int b) {
  if (a == kAll || a == b) return b;
  if (b == kAll) return a;
  const std::pair<int, int> key = std::minmax(a, b);
  const auto found = both_.find(key);
  if (found != both_.end()) return found->second;
  const int number = add(combine(at(a), at(b), Combine::kBoth, *budget_));
  both_.emplace(key, number);
  return number;
}

int DfaStore::complement(int a) {
  if (universe_ == kAll) universe_ = add(make_universe_(*budget_));
  if (a == kAll) a = universe_;
  const auto found = complements_.find(a);
  if (found != complements_.end()) return found->second;
  const int number = add(combine(at(universe_), at(a), Combine::kFirstOnly, *budget_));
  complements_.emplace(a, number);
  return number;
}

const Dfa::Lengths& DfaStore::lengths(int number) {
  const auto found = lengths_.find(number);
  if (found != lengths_.end()) return found->second;
  return lengths_.emplace(number, at(number).lengths()).first->second;
}

void DfaStore::finish() {
  by_key_.clear();
  both_.clear();
  complements_.clear();
  lengths_.clear();
  budget_ = nullptr;
}

std::vector<uint64_t> matching_sets(const DfaStore& store, const std::vector<int>& numbers,
                                    Budget& budget) {
  constexpr size_t kMaxStates = 20'000;
  // A byte of each class that some automaton tells from the others.
  std::vector<uint8_t> representatives;
  std::set<std::string> classes;
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string key;
    for (const int number : numbers) {
      key += static_cast<char>(store.at(number).table().classes[byte]);
    }
    if (classes.insert(std::move(key)).second) {
      representatives.push_back(static_cast<uint8_t>(byte));
    }
  }
  using States = std::vector<int32_t>;
  States first;
  for (const int number : numbers) first.push_back(store.at(number).start());
  std::set<States> seen = {first};
  std::vector<States> todo = {first};
  std::set<uint64_t> found;
  while (!todo.empty()) {
    budget.step();
    const States states = std::move(todo.back());
    todo.pop_back();
    uint64_t matches = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (store.at(numbers[i]).accepts(states[i])) matches |= uint64_t{1} << i;
    }
    found.insert(matches);
    for (const uint8_t byte : representatives) {
      States next;
      for (size_t i = 0; i < numbers.size(); ++i) {
        next.push_back(store.at(numbers[i]).step(states[i], byte));
      }
      if (!seen.insert(next).second) continue;
      if (seen.size() > kMaxStates) {
        throw Error("the patterns of the names of one object take too many states together");
      }
      todo.push_back(std::move(next));
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace quire::grammar
