#include "grammar/number_dfa.h"

#include <fmt/format.h>

#include <string>
#include <unordered_map>

#include "grammar/nfa.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

enum class Phase : uint8_t { kStart, kAfterMinus, kZero, kInteger, kAfterPoint, kFraction };

// How far a number has been read, and what a rule knows of it.
struct NumberState {
  Phase phase = Phase::kStart;
  bool negative = false;
  int64_t a = 0;
  int64_t b = 0;
  bool operator==(const NumberState&) const = default;
};

struct NumberStateHash {
  size_t operator()(const NumberState& state) const {
    uint64_t hash = static_cast<uint64_t>(state.phase) * 2 + (state.negative ? 1 : 0);
    for (const int64_t part : {state.a, state.b}) {
      constexpr uint64_t kOdd = 0x9E3779B97F4A7C15;
      hash = (hash + static_cast<uint64_t>(part)) * kOdd;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

// What is asked of a number, as its digits come.
class NumberRule {
 public:
  virtual ~NumberRule() = default;
  // Both take digits one at a time and say whether the number can still be one of those sought.
  virtual bool integer_digit(NumberState& state, int digit) const {
    (void)state, (void)digit;
    return true;
  }
  virtual bool fraction_digit(NumberState& state, int digit) const {
    (void)state, (void)digit;
    return true;
  }
  virtual void point(NumberState& state) const { (void)state; }
  virtual bool accepts(const NumberState& state) const {
    (void)state;
    return true;
  }
};

class IntegerRule : public NumberRule {
 public:
  bool fraction_digit(NumberState&, int digit) const override { return digit == 0; }
};

// state.a: how many digits have been read (before the point, after it); state.b: how they compare.
class BoundRule : public NumberRule {
 public:
  BoundRule(const Decimal& bound, Bound kind)
      : bound_(bound),
        kind_(kind),
        integer_(bound.integer_digits()),
        fraction_(bound.fraction_digits()) {}

  bool integer_digit(NumberState& state, int digit) const override {
    const auto length = static_cast<int64_t>(integer_.size());
    if (state.phase == Phase::kZero) return true;
    state.a = std::min(state.a + 1, length + 1);
    if (state.a <= length && state.b == 0) {
      state.b = compare(digit, integer_[static_cast<size_t>(state.a - 1)] - '0');
    }
    return true;
  }
  void point(NumberState& state) const override {
    state.b = compare_integers(state);
    state.a = 0;
  }
  bool fraction_digit(NumberState& state, int digit) const override {
    if (state.b != 0) return true;
    if (state.a < static_cast<int64_t>(fraction_.size())) {
      state.b = compare(digit, fraction_[static_cast<size_t>(state.a++)] - '0');
    } else {
      state.b = digit > 0 ? 1 : 0;
    }
    if (state.b != 0) state.a = 0;
    return true;
  }
  bool accepts(const NumberState& state) const override {
    const int order = compare_values(state);
    switch (kind_) {
      case Bound::kAtLeast:
        return order >= 0;
      case Bound::kMoreThan:
        return order > 0;
      case Bound::kAtMost:
        return order <= 0;
      case Bound::kLessThan:
        return order < 0;
    }
    return false;
  }

 private:
  static int compare(int64_t a, int64_t b) { return a < b ? -1 : a > b ? 1 : 0; }
  int compare_integers(const NumberState& state) const {
    const int by_length = compare(state.a, static_cast<int64_t>(integer_.size()));
    return by_length != 0 ? by_length : static_cast<int>(state.b);
  }
  int compare_values(const NumberState& state) const {
    const bool in_fraction = state.phase == Phase::kFraction;
    int order = in_fraction ? static_cast<int>(state.b) : compare_integers(state);
    const int64_t read = in_fraction ? state.a : 0;
    if (order == 0 && read < static_cast<int64_t>(fraction_.size())) order = -1;
    if (bound_.is_zero()) return state.negative ? -order : order;
    if (bound_.negative != state.negative) return state.negative ? -1 : 1;
    return state.negative ? -order : order;
  }

  Decimal bound_;
  Bound kind_;
  std::string integer_;
  std::string fraction_;
};

// The divisor is modulus_ / 10^places_, and what has been read, without its point, is n. Of n
// mod modulus_ only that counts which later digits can tell: n is followed to a multiple by k more
// digits if and only if these are the number r_k = -n 10^k mod modulus_, which has to be less than
// 10^k. The least such k, and r_k, decide all others: of 86,400,000 a few hundred are told apart.
// state.a holds both; state.b: how many digits of the fraction.
class MultipleRule : public NumberRule {
 public:
  explicit MultipleRule(const Decimal& divisor)
      : places_(static_cast<int64_t>(divisor.fraction_digits().size())) {
    constexpr size_t kMaxDigits = 17;  // so that states fit state.a
    constexpr int64_t kMaxSteps = 100'000;
    const std::string digits = divisor.integer_digits() + divisor.fraction_digits();
    const size_t first = digits.find_first_not_of('0');
    const bool fits = digits.size() - first <= kMaxDigits;
    if (fits) modulus_ = std::stoll(digits);
    // Factors of 10 are told by the last digits alone.
    int64_t steps = modulus_;
    for (int64_t power = 1; power < modulus_; power *= 10) {
      if (steps % 2 == 0) steps /= 2;
      if (steps % 5 == 0) steps /= 5;
    }
    if (!fits || steps > kMaxSteps) {
      throw Error(
          fmt::format("multiples of {} take too many states; at most {} significant "
                      "steps are enforced",
                      divisor.plain(), kMaxSteps));
    }
  }

  bool integer_digit(NumberState& state, int digit) const override {
    Rest rest = rest_of(state);
    const int64_t added = digit * power_of_10(rest.count - 1) % modulus_;
    // One digit fewer has to come, unless this is the wrong one.
    Rest next = rest.count == 0 ? Rest{0, (modulus_ - digit % modulus_) % modulus_}
                                : Rest{rest.count - 1, (rest.digits - added + modulus_) % modulus_};
    while (next.digits >= power_of_10(next.count)) {
      next = {next.count + 1, next.digits * 10 % modulus_};
    }
    state.a = next.digits * kCounts + next.count;
    return true;
  }
  bool fraction_digit(NumberState& state, int digit) const override {
    if (state.b >= places_) return digit == 0;
    integer_digit(state, digit);
    ++state.b;
    return true;
  }
  bool accepts(const NumberState& state) const override {
    Rest rest = rest_of(state);
    if (rest.count > places_ - state.b) return false;
    for (; rest.count < places_ - state.b; ++rest.count) rest.digits = rest.digits * 10 % modulus_;
    return rest.digits == 0;
  }

 private:
  static constexpr int64_t kCounts = 32;
  struct Rest {
    int64_t count;   // of digits that have to come at least
    int64_t digits;  // the only ones, as a number
  };
  static Rest rest_of(const NumberState& state) { return {state.a % kCounts, state.a / kCounts}; }
  static int64_t power_of_10(int64_t exponent) {
    int64_t power = 1;
    for (int64_t i = 0; i < exponent; ++i) power *= 10;
    return power;
  }

  int64_t modulus_ = 1;
  int64_t places_;
};

// Reads one character; false where it cannot come next.
bool read(NumberState& state, char c, const NumberRule& rule) {
  if (c == '-') {
    if (state.phase != Phase::kStart) return false;
    state.phase = Phase::kAfterMinus;
    state.negative = true;
    return true;
  }
  if (c == '.') {
    if (state.phase != Phase::kZero && state.phase != Phase::kInteger) return false;
    rule.point(state);
    state.phase = Phase::kAfterPoint;
    return true;
  }
  const int digit = c - '0';
  switch (state.phase) {
    case Phase::kStart:
    case Phase::kAfterMinus:
      state.phase = digit == 0 ? Phase::kZero : Phase::kInteger;
      return rule.integer_digit(state, digit);
    case Phase::kInteger:
      return rule.integer_digit(state, digit);
    case Phase::kZero:
      return false;
    case Phase::kAfterPoint:
    case Phase::kFraction:
      state.phase = Phase::kFraction;
      return rule.fraction_digit(state, digit);
  }
  return false;
}

constexpr std::string_view kNumberCharacters = "-.0123456789";

// Of its numbers, twice, and its row, which may be in a vector that grows.
constexpr size_t kBytesPerState =
    3 * sizeof(NumberState) + 64 + 2 * sizeof(int32_t) * (kNumberCharacters.size() + 1);

DfaPtr explore(const NumberRule& rule, Budget& budget) {
  Dfa::Table table;
  table.num_classes = static_cast<int>(kNumberCharacters.size()) + 1;
  for (size_t i = 0; i < kNumberCharacters.size(); ++i) {
    table.classes[static_cast<uint8_t>(kNumberCharacters[i])] = static_cast<uint8_t>(i + 1);
  }
  std::unordered_map<NumberState, int32_t, NumberStateHash> numbers = {{NumberState{}, 0}};
  std::vector<NumberState> states = {NumberState{}};
  ScratchMemory memory(budget);
  for (size_t i = 0; i < states.size(); ++i) {
    budget.step();
    memory.take(kBytesPerState);
    const NumberState state = states[i];
    const bool is_whole = state.phase == Phase::kZero || state.phase == Phase::kInteger ||
                          state.phase == Phase::kFraction;
    table.accepting.push_back(is_whole && rule.accepts(state));
    table.next.push_back(Dfa::kDead);
    for (const char c : kNumberCharacters) {
      NumberState next = state;
      if (!read(next, c, rule)) {
        table.next.push_back(Dfa::kDead);
        continue;
      }
      const auto [found, is_new] = numbers.try_emplace(next, static_cast<int32_t>(states.size()));
      if (is_new) states.push_back(next);
      table.next.push_back(found->second);
    }
  }
  return std::make_shared<Dfa>(std::move(table), budget);
}

}  // namespace

DfaPtr any_number_dfa(Budget& budget) {
  return explore(NumberRule(), budget);
}

DfaPtr integer_dfa(Budget& budget) {
  return explore(IntegerRule(), budget);
}

DfaPtr bound_dfa(const Decimal& bound, Bound kind, Budget& budget) {
  return explore(BoundRule(bound, kind), budget);
}

DfaPtr multiple_dfa(const Decimal& divisor, Budget& budget) {
  return explore(MultipleRule(divisor), budget);
}

DfaPtr number_set_dfa(std::span<const Decimal> numbers, Budget& budget) {
  Nfa nfa;
  const int32_t zeros = nfa.add_state();
  nfa.add_bytes(zeros, '0', '0', zeros);
  nfa.add_epsilon(zeros, Nfa::Epsilon::kAlways, nfa.accept());
  const int32_t whole = nfa.add_state();
  nfa.add_epsilon(whole, Nfa::Epsilon::kAlways, nfa.accept());
  nfa.add_epsilon(whole, Nfa::Epsilon::kAlways, nfa.add_text(".0", zeros));
  const int32_t begin = nfa.add_state();
  ScratchMemory memory(budget);
  for (const Decimal& number : numbers) {
    budget.step();
    memory.take(number.plain().size() * Nfa::kStateBytes);
    const int32_t end = number.fraction_digits().empty() ? whole : zeros;
    nfa.add_epsilon(begin, Nfa::Epsilon::kAlways, nfa.add_text(number.plain(), end));
    if (number.is_zero()) nfa.add_epsilon(begin, Nfa::Epsilon::kAlways, nfa.add_text("-0", end));
  }
  return nfa.determinise(begin, budget);
}

}  // namespace quire::grammar
