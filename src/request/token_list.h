#pragma once
// The few tokens that one step brings of a sequence, stored in place, so that a step of hundreds of
// sequences allocates nothing for them.
//
// Thread safety: a plain value.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"

namespace quire {

inline constexpr size_t kMaxTokensPerStep = 32;

class TokenList {
 public:
  using value_type = int32_t;
  using iterator = const int32_t*;
  using const_iterator = const int32_t*;

  TokenList() = default;
  TokenList(std::initializer_list<int32_t> token_ids) {
    for (const int32_t id : token_ids) push_back(id);
  }
  TokenList(const TokenList& other) { *this = other; }
  TokenList& operator=(const TokenList& other) {
    size_ = other.size_;
    std::copy_n(other.values_.begin(), size_, values_.begin());
    return *this;
  }

  void push_back(int32_t token_id) {
    check(size_ < kMaxTokensPerStep, "a step brings no more tokens of a sequence than it may");
    values_[size_++] = token_id;
  }
  // Keeps the first `count` tokens; there must be at least as many.
  void truncate(size_t count) {
    check(count <= size_, "a list of tokens is only made shorter");
    size_ = count;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int32_t operator[](size_t index) const { return values_[index]; }
  int32_t back() const { return values_[size_ - 1]; }
  const int32_t* begin() const { return values_.data(); }
  const int32_t* end() const { return values_.data() + size_; }
  bool operator==(const TokenList& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }

 private:
  size_t size_ = 0;
  std::array<int32_t, kMaxTokensPerStep> values_;  // those behind size_ are not set
};

}  // namespace quire
