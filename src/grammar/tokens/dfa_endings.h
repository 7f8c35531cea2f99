#pragma once
// The shortest ways of an automaton to an end.
//
// Thread safety: immutable once made.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "grammar/dfa.h"

namespace quire::grammar {

class DfaEndings {
 public:
  // `dfa` has texts, and must outlive it.
  DfaEndings(const Dfa& dfa, Budget& budget);

  // The fewest bytes from a state to an end.
  uint32_t distance(int32_t state) const { return distance_[static_cast<size_t>(state)]; }
  // The largest distance of all states.
  uint32_t largest_distance() const { return largest_distance_; }
  // Whether any byte may follow.
  bool goes_on(int32_t state) const { return goes_on_[static_cast<size_t>(state)]; }
  // Appends distance(state) bytes that lead to an end.
  void append(int32_t state, std::string& text) const;

 private:
  const Dfa* dfa_;
  std::vector<uint32_t> distance_;
  std::vector<uint8_t> next_byte_;
  std::vector<bool> goes_on_;
  uint32_t largest_distance_ = 0;
};

}  // namespace quire::grammar
