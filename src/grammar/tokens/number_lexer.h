#pragma once
// JSON numbers that are being generated, for all goals that are asked of them, as an automaton that
// is made as far as it is visited.
//
// Numbers of an automaton have no exponent, and no point where only zeros can follow it: an integer
// is written as one. With a point they have no more digits than a double tells apart, unless no
// others are left (number_digits.h). Thread safety: one thread at a time.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "grammar/tokens/number_digits.h"
#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {

struct NumberTarget {
  uint32_t slot = 0;
  EscapedDfaPtr dfa = nullptr;  // of plain decimal notation; null: any number
  bool operator==(const NumberTarget&) const = default;
};

class NumberLexer {
 public:
  static constexpr int32_t kDead = -1;
  // A generated number has at most this many bytes; one with an exponent has fewer before it, and
  // few digits in it: so it is within what is accepted, and in the range of a double.
  static constexpr uint32_t kMaxBytes = 300;
  static constexpr uint32_t kMaxBytesBeforeExponent = 200;
  static constexpr uint32_t kMaxExponentDigits = 2;

  // The state before the first byte.
  int32_t begin(const std::vector<NumberTarget>& targets);
  int32_t step(int32_t state, uint8_t byte);
  static bool may_go_on(uint8_t byte) {
    return (byte >= '0' && byte <= '9') || byte == '.' || byte == '-' || byte == '+' ||
           byte == 'e' || byte == 'E';
  }
  // The slots whose goals a number that ends here fulfils, as bits.
  uint64_t results(int32_t state) const { return states_[static_cast<size_t>(state)].results; }
  // Bytes of all states. Thread safety: any thread.
  size_t bytes() const { return num_bytes_.load(std::memory_order_relaxed); }
  // Whether another byte of the number may follow.
  bool goes_on(int32_t state);

  template <typename Visit>
  void for_each_ending(int32_t state, const Visit& visit) const {
    for (const At& at : states_[static_cast<size_t>(state)].targets) {
      visit(sources_[at.source].slot, cost(states_[static_cast<size_t>(state)].place, at));
    }
  }
  void append_ending(int32_t state, uint32_t slot, std::string& out) const;

 private:
  enum class Phase : uint8_t {
    kStart,
    kMinus,
    kZero,
    kInteger,
    kPoint,
    kFraction,
    kExponent,
    kExponentSign,
    kExponentDigits
  };
  struct At {
    uint32_t source = 0;
    int32_t state = 0;
    auto operator<=>(const At&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Place {
    Phase phase = Phase::kStart;
    uint32_t length = 0;
    uint32_t num_exponent_digits = 0;
    uint32_t num_digits = 0;  // from the first on that is not 0, without the exponent's
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct State {
    Place place;
    std::vector<At> targets;
    uint64_t results = 0;
    std::array<int32_t, 128> next{};
  };
  static constexpr int32_t kUnknown = -3;

  static bool is_whole(Phase phase);
  static bool take(Place& place, uint8_t byte);
  static bool needs_fraction(const Dfa& dfa, int32_t behind_point);
  uint32_t cost(const Place& place, const At& at) const;
  // The digits of the shortest number, without zeros that begin it.
  uint32_t fewest_digits(const Place& place, const At& at) const;
  // Whether an integer of at most kMaxBytes begins like this.
  static bool leads_to_integer(const NumberDigits& digits, const Place& place, const At& at);
  // Whether a step keeps to what a double tells apart, as far as it can.
  bool is_exact(const Place& before, const At& from, const Place& after, const At& to);
  const NumberDigits& digits_of(uint32_t source);
  int32_t explore(int32_t state, uint8_t byte);
  int32_t add(const Place& place, std::vector<At> targets);

  std::vector<NumberTarget> sources_;
  std::vector<std::optional<NumberDigits>> digits_;  // of sources, none: not asked for yet
  std::vector<State> states_;
  std::map<std::pair<Place, std::vector<At>>, int32_t> numbers_;
  std::atomic<size_t> num_bytes_ = 0;
};

}  // namespace quire::grammar
