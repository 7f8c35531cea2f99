#pragma once
// Masks of the places in texts of a context-free grammar. Places where the same can follow have the
// same key, whatever came before: a text comes to few of them again and again.
//
// Thread safety: any thread, at the same time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace quire::grammar {

class PlaceMasks {
 public:
  static constexpr size_t kMostMaskBytes = size_t{64} << 20;
  static constexpr size_t kMostKeyBytes = size_t{32} << 20;

  using Key = std::u32string;
  struct Mask {
    std::vector<uint32_t> tokens;
    size_t most_ending_bytes = 0;  // behind any of them
  };
  using MaskPtr = std::shared_ptr<const Mask>;

  // A number that no other key has. One key may get several in the course of time. Never 0.
  uint64_t number_of(const Key& key);
  MaskPtr find(const Key& key, uint64_t trie);
  void keep(const Key& key, uint64_t trie, MaskPtr mask);
  // Of all keys and masks.
  size_t bytes() {
    const std::scoped_lock lock(mutex_);
    return key_bytes_ + mask_bytes_;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Key, uint64_t> numbers_;
  uint64_t last_number_ = 0;
  size_t key_bytes_ = 0;
  uint64_t trie_ = 0;  // which the masks are of
  std::unordered_map<Key, MaskPtr> masks_;
  size_t mask_bytes_ = 0;
};

inline void append_number(PlaceMasks::Key& key, uint64_t number) {
  key += static_cast<char32_t>(number >> 32);
  key += static_cast<char32_t>(number & UINT32_MAX);
}

}  // namespace quire::grammar
