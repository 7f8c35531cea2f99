#include "grammar/tokens/number_digits.h"

#include <algorithm>
#include <string_view>

namespace quire::grammar {
namespace {

constexpr uint64_t kMostListed = 1'000'000;

// For each state those that lead to it by one of these bytes.
std::vector<std::vector<int32_t>> states_before(const Dfa& dfa, std::string_view bytes) {
  std::vector<std::vector<int32_t>> before(static_cast<size_t>(dfa.num_states()));
  for (int32_t state = 0; state < dfa.num_states(); ++state) {
    for (const char byte : bytes) {
      const int32_t next = dfa.step(state, static_cast<uint8_t>(byte));
      if (next != Dfa::kDead) before[static_cast<size_t>(next)].push_back(state);
    }
  }
  return before;
}

}  // namespace

NumberDigits::NumberDigits(const Dfa& dfa) {
  find_integers(dfa);
  count_numbers(dfa);
}

void NumberDigits::find_integers(const Dfa& dfa) {
  to_integer_.assign(static_cast<size_t>(dfa.num_states()), kNever);
  const auto before = states_before(dfa, "0123456789");
  std::vector<int32_t> queue;
  for (int32_t state = 0; state < dfa.num_states(); ++state) {
    if (!dfa.accepts(state)) continue;
    to_integer_[static_cast<size_t>(state)] = 0;
    queue.push_back(state);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto at = static_cast<size_t>(queue[i]);
    for (const int32_t from : before[at]) {
      uint32_t& digits = to_integer_[static_cast<size_t>(from)];
      if (digits != kNever) continue;
      digits = to_integer_[at] + 1;
      queue.push_back(from);
    }
  }
}

void NumberDigits::count_numbers(const Dfa& dfa) {
  constexpr std::string_view kBytes = "-.0123456789";
  const auto before = states_before(dfa, kBytes);
  const auto num_states = static_cast<size_t>(dfa.num_states());
  // Behind the others nothing but zeros comes: they are one number each.
  std::vector<bool> has_digits(num_states);
  std::vector<int32_t> queue;
  for (int32_t state = 0; state < dfa.num_states(); ++state) {
    has_digits[static_cast<size_t>(state)] = std::ranges::any_of(
        kBytes.substr(3), [&](char c) { return dfa.step(state, static_cast<uint8_t>(c)) >= 0; });
    if (has_digits[static_cast<size_t>(state)]) queue.push_back(state);
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const int32_t from : before[static_cast<size_t>(queue[i])]) {
      if (has_digits[static_cast<size_t>(from)]) continue;
      has_digits[static_cast<size_t>(from)] = true;
      queue.push_back(from);
    }
  }
  // Ends first; what reaches a cycle of digits is never reached.
  std::vector<uint64_t> numbers(num_states);
  std::vector<uint32_t> open(num_states);
  queue.clear();
  for (int32_t state = 0; state < dfa.num_states(); ++state) {
    const auto at = static_cast<size_t>(state);
    if (has_digits[at]) {
      open[at] = static_cast<uint32_t>(std::ranges::count_if(
          kBytes, [&](char c) { return dfa.step(state, static_cast<uint8_t>(c)) >= 0; }));
      numbers[at] = dfa.accepts(state) ? 1 : 0;
    } else {
      numbers[at] = 1;
      queue.push_back(state);
    }
  }
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto at = static_cast<size_t>(queue[i]);
    for (const int32_t state : before[at]) {
      const auto from = static_cast<size_t>(state);
      if (!has_digits[from]) continue;
      numbers[from] = std::min(kMostListed + 1, numbers[from] + numbers[at]);
      if (--open[from] == 0) queue.push_back(state);
    }
  }
  is_listed_ = open.front() == 0 && numbers.front() <= kMostListed;
}

}  // namespace quire::grammar
