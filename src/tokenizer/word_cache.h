#pragma once
// Remembers the ids of short words: in running text most words have been seen before. A fixed
// number of entries, each one cache line; a new word replaces the one in its place, so memory is
// bounded and nothing is ever scanned. One thread at a time: each encode() borrows a cache of its
// own.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace quire::tokenizer_internal {

class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 32;
  static constexpr std::size_t kMaxIds = 6;

  struct alignas(64) Entry {
    std::uint64_t key[kMaxBytes / 8];
    std::int32_t ids[kMaxIds];
    std::uint32_t size;  // bytes of the word; 0: the entry is empty
    std::uint32_t count;
  };

  // A word as the cache compares it: its bytes, then zeros.
  struct Key {
    std::uint64_t bytes[kMaxBytes / 8];
    std::uint32_t size;
    std::uint32_t index;
  };

  // Zeroed memory of the system becomes real page by page, so a cache that sees one short prompt
  // stays small.
  WordCache() : memory_(std::calloc(kEntries + 1, sizeof(Entry)), &std::free) {
    std::size_t space = (kEntries + 1) * sizeof(Entry);
    void* start = memory_.get();
    if (start == nullptr) throw std::bad_alloc();
    entries_ =
        static_cast<Entry*>(std::align(alignof(Entry), kEntries * sizeof(Entry), start, space));
  }

  // Requires 0 < word.size() <= kMaxBytes. Bytes up to `readable_end` may be read, which saves a
  // copy of the word wherever it is not at the very end of a text.
  static Key make_key(std::string_view word, const char* readable_end) {
    Key key{};
    key.size = static_cast<std::uint32_t>(word.size());
    if (word.size() <= 8 && readable_end - word.data() >= 8) {
      std::memcpy(key.bytes, word.data(), 8);
      key.bytes[0] &= ~std::uint64_t{0} >> (64 - 8 * word.size());
    } else {
      std::memcpy(key.bytes, word.data(), word.size());
    }
    key.index = index_of(key);
    return key;
  }

  // The entry of this word; nullptr when it is not there. Valid until the next put().
  const Entry* find(const Key& key) const {
    const Entry& entry = entries_[key.index];
    if (entry.size != key.size || entry.key[0] != key.bytes[0]) return nullptr;
    if (key.size > 8 && std::memcmp(entry.key, key.bytes, kMaxBytes) != 0) return nullptr;
    return &entry;
  }

  // Does nothing when there are more than kMaxIds ids.
  void put(const Key& key, std::span<const std::int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entries_[key.index];
    std::memcpy(entry.key, key.bytes, kMaxBytes);
    std::memcpy(entry.ids, ids.data(), ids.size_bytes());
    entry.size = key.size;
    entry.count = static_cast<std::uint32_t>(ids.size());
  }

 private:
  // 8 MB. Measured on the 9 MB of WordNet's glosses, a text with unusually many words: 2 MB gives
  // 52 MB/s, 4 MB 65, 8 MB 88.
  static constexpr int kLogEntries = 17;
  static constexpr std::size_t kEntries = std::size_t{1} << kLogEntries;

  static std::uint32_t index_of(const Key& key) {
    std::uint64_t hash = (key.bytes[0] ^ key.size) * 0x9E3779B97F4A7C15u;
    if (key.size > 8) {
      for (std::size_t i = 1; i < std::size(key.bytes); ++i) {
        hash = (hash ^ hash >> 29 ^ key.bytes[i]) * 0xBF58476D1CE4E5B9u;
      }
    }
    return static_cast<std::uint32_t>((hash ^ hash >> 32) * 0x94D049BB133111EBu >>
                                      (64 - kLogEntries));
  }

  std::unique_ptr<void, decltype(&std::free)> memory_;
  Entry* entries_;
};

}  // namespace quire::tokenizer_internal
