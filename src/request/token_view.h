#pragma once
// A sequence's tokens as one list, though they lie in two: the prompt, which all sequences of a
// request share, and the sequence's own output.
//
// A view: the lists must outlive it. Thread safety: a plain value.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace quire {

class TokenView {
 public:
  explicit TokenView(std::span<const int32_t> prompt, std::span<const int32_t> output = {})
      : prompt_(prompt), output_(output) {}

  size_t size() const { return prompt_.size() + output_.size(); }
  int32_t operator[](size_t index) const {
    return index < prompt_.size() ? prompt_[index] : output_[index - prompt_.size()];
  }

  // Tokens [begin, begin + count) side by side: in place, or copied to `scratch` where the end of
  // the prompt lies between them.
  std::span<const int32_t> slice(size_t begin, size_t count, std::vector<int32_t>& scratch) const {
    const size_t end = begin + count;
    if (end <= prompt_.size()) return prompt_.subspan(begin, count);
    if (begin >= prompt_.size()) return output_.subspan(begin - prompt_.size(), count);
    scratch.assign(prompt_.begin() + static_cast<std::ptrdiff_t>(begin), prompt_.end());
    scratch.insert(scratch.end(), output_.begin(),
                   output_.begin() + static_cast<std::ptrdiff_t>(end - prompt_.size()));
    return scratch;
  }

 private:
  std::span<const int32_t> prompt_;
  std::span<const int32_t> output_;
};

}  // namespace quire
