#pragma once
// A growing array of token ids that is written a few ids at a time without a check for each.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quire::tokenizer_internal {

class IdBuffer {
 public:
  // Where the next `count` ids may be written; advance() then says how many were.
  std::int32_t* room_for(std::size_t count) {
    if (size_ + count > ids_.size()) ids_.resize(std::max(size_ + count, ids_.size() * 2));
    return ids_.data() + size_;
  }
  void advance(std::size_t count) { size_ += count; }

  void append(std::int32_t id) {
    *room_for(1) = id;
    advance(1);
  }
  void append(std::span<const std::int32_t> ids) {
    std::copy(ids.begin(), ids.end(), room_for(ids.size()));
    advance(ids.size());
  }

  std::size_t size() const { return size_; }
  void truncate(std::size_t size) { size_ = size; }
  std::span<const std::int32_t> since(std::size_t start) const {
    return {ids_.data() + start, size_ - start};
  }
  std::vector<std::int32_t> take() {
    ids_.resize(std::exchange(size_, 0));
    return std::exchange(ids_, {});
  }

 private:
  std::vector<std::int32_t> ids_;
  std::size_t size_ = 0;
};

}  // namespace quire::tokenizer_internal
