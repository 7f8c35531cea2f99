#pragma once
// How exact the numbers of an automaton have to be.
//
// Readers of JSON round a number with a point to a double, which tells numbers of up to 15 digits
// apart and may make others fail their schema: 3.0000000000000000001 is not more than 3 there.
// Thread safety: immutable once made.
#include <cstdint>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

class NumberDigits {
 public:
  static constexpr uint32_t kExact = 15;
  static constexpr uint32_t kNever = UINT32_MAX;

  // `dfa` has numbers in plain decimal notation.
  explicit NumberDigits(const Dfa& dfa);

  // The fewest digits from a state before the point to the end of an integer; kNever: none leads
  // there.
  uint32_t to_integer(int32_t state) const { return to_integer_[static_cast<size_t>(state)]; }
  // Whether the numbers are few, as those of an enum: they are written as they are given.
  bool is_listed() const { return is_listed_; }
  size_t bytes() const { return to_integer_.size() * sizeof(uint32_t); }

 private:
  void find_integers(const Dfa& dfa);
  void count_numbers(const Dfa& dfa);

  std::vector<uint32_t> to_integer_;
  bool is_listed_ = false;
};

}  // namespace quire::grammar
