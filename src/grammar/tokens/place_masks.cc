#include "grammar/tokens/place_masks.h"

#include <utility>

namespace quire::grammar {
namespace {

// A key in a map, about.
size_t bytes_of(const PlaceMasks::Key& key) {
  return key.size() * sizeof(char32_t) + 96;
}

}  // namespace

uint64_t PlaceMasks::number_of(const Key& key) {
  const std::scoped_lock lock(mutex_);
  const auto found = numbers_.find(key);
  if (found != numbers_.end()) return found->second;
  key_bytes_ += bytes_of(key);
  if (key_bytes_ > kMostKeyBytes) {
    numbers_.clear();
    key_bytes_ = bytes_of(key);
  }
  numbers_.emplace(key, ++last_number_);
  return last_number_;
}

PlaceMasks::MaskPtr PlaceMasks::find(const Key& key, uint64_t trie) {
  const std::scoped_lock lock(mutex_);
  if (trie != trie_) return nullptr;
  const auto found = masks_.find(key);
  return found == masks_.end() ? nullptr : found->second;
}

void PlaceMasks::keep(const Key& key, uint64_t trie, MaskPtr mask) {
  const size_t bytes = bytes_of(key) + mask->tokens.size() * sizeof(uint32_t);
  const std::scoped_lock lock(mutex_);
  if (trie != trie_ || mask_bytes_ + bytes > kMostMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
    trie_ = trie;
  }
  if (masks_.emplace(key, std::move(mask)).second) mask_bytes_ += bytes;
}

}  // namespace quire::grammar
