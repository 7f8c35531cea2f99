#pragma once
// The model's tokens and their ids, both ways. Texts lie end to end in one string and the hash
// table is flat, so that loading 150,000 tokens takes milliseconds. Built once, then read by any
// thread.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::tokenizer_internal {

class Vocabulary {
 public:
  // The largest id accepted. Tables are indexed by id, so that one absurd id in a small file must
  // not cost gigabytes; the largest vocabularies in use have about 260,000.
  static constexpr std::int32_t kMaxId = (1 << 22) - 1;
  static constexpr std::int32_t kNone = -1;

  enum class Added { kYes, kDuplicateToken, kDuplicateId };

  // Requires 0 <= id <= kMaxId.
  Added add(std::string_view token, std::int32_t id);

  // The token's id, or kNone.
  std::int32_t find(std::string_view token) const;
  // The same, faster where the id is `guess`, which may be any number.
  std::int32_t find(std::string_view token, std::int32_t guess) const {
    return has(guess) && text(guess) == token ? guess : find(token);
  }
  // The ids of at most kMostAtOnce tokens. A vocabulary is larger than a core's caches; here the
  // waits for memory overlap.
  static constexpr std::size_t kMostAtOnce = 64;
  void find_all(std::span<const std::string_view> tokens, std::int32_t* ids) const;

  bool has(std::int32_t id) const {
    return id >= 0 && static_cast<std::size_t>(id) < spans_.size() && spans_[id].used;
  }
  // Requires has(id).
  std::string_view text(std::int32_t id) const {
    return std::string_view(texts_).substr(spans_[id].offset, spans_[id].size);
  }

  std::size_t size() const { return count_; }
  // One more than the largest id.
  std::int32_t end_id() const { return static_cast<std::int32_t>(spans_.size()); }

 private:
  struct Span {
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
    bool used = false;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = kNone;
  };

  static std::uint32_t hash_of(std::string_view token);
  std::size_t find_slot(std::string_view token, std::uint32_t hash) const;
  void grow();

  std::string texts_;
  std::vector<Span> spans_;  // by id
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  std::size_t count_ = 0;
};

}  // namespace quire::tokenizer_internal
