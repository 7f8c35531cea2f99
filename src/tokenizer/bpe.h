#pragma once
// The BPE model: a word, cut by the pre-tokenizer, to token ids.
//
// Starts from the word's characters (its bytes, where the pipeline is byte-level) and joins the
// pair of lowest rank, leftmost first, until none joins. Short words search for it linearly; long
// ones keep a heap, so that a word of n bytes costs O(n log n).
//
// A Bpe is immutable and shared by threads; what encoding writes to is in BpeScratch, one a thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tokenizer/id_buffer.h"
#include "tokenizer/merge_table.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace quire::tokenizer_internal {

// What stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kMarker = "\u2581";

// Whether a marker follows some other character.
bool has_inner_marker(std::string_view token);

struct BpeOptions {
  std::int32_t unk_id = Vocabulary::kNone;  // kNone: unknown characters vanish
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is a token as a whole is that token
  // No merge makes a token with a marker (U+2581) after another character, so that a long text can
  // be cut there and its words remembered.
  bool splits_before_marker = false;
};

class BpeScratch {
 public:
  // Frees what a very long word needed; the cache of words stays.
  void trim() {
    constexpr std::size_t kMaxKeptSymbols = 1 << 18;
    if (symbols_.capacity() <= kMaxKeptSymbols) return;
    const auto free = [](auto&... buffers) {
      (std::remove_reference_t<decltype(buffers)>().swap(buffers), ...);
    };
    free(symbols_, pairs_, previous_, next_, heap_, spelled_);
  }

 private:
  friend class Bpe;
  WordCache cache_;
  std::vector<std::int32_t> symbols_;
  std::vector<Merge> pairs_;
  std::vector<std::int32_t> previous_;
  std::vector<std::int32_t> next_;
  std::vector<std::uint64_t> heap_;
  std::string spelled_;
};

class Bpe {
 public:
  Bpe(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options);

  const Vocabulary& vocabulary() const { return vocabulary_; }

  // Whether words may be given as bytes instead of spelled in the byte alphabet: every byte has a
  // token.
  bool has_all_bytes() const { return has_all_bytes_; }

  // From now on words are bytes. Requires has_all_bytes().
  void use_bytes() {
    bytes_ = true;
    options_.splits_before_marker = false;
  }

  // Appends the ids of `word`, which must not be empty. Bytes up to `readable_end` may be read.
  void encode(std::string_view word, const char* readable_end, BpeScratch& scratch,
              IdBuffer& out) const {
    if (options_.splits_before_marker) {
      encode_marked(word, readable_end, scratch, out);
    } else {
      encode_part(word, readable_end, scratch, out);
    }
  }

 private:
  void encode_part(std::string_view word, const char* readable_end, BpeScratch& scratch,
                   IdBuffer& out) const {
    if (word.size() <= WordCache::kMaxBytes) {
      encode_cached(word, readable_end, scratch, out);
    } else {
      encode_uncached(word, scratch, out);
    }
  }
  void encode_cached(std::string_view word, const char* readable_end, BpeScratch& scratch,
                     IdBuffer& out) const {
    const WordCache::Key key = WordCache::make_key(word, readable_end);
    if (const WordCache::Entry* entry = scratch.cache_.find(key)) {
      std::memcpy(out.room_for(WordCache::kMaxIds), entry->ids, sizeof entry->ids);
      out.advance(entry->count);
      return;
    }
    const std::size_t start = out.size();
    encode_uncached(word, scratch, out);
    scratch.cache_.put(key, out.since(start));
  }

  void encode_marked(std::string_view text, const char* readable_end, BpeScratch& scratch,
                     IdBuffer& out) const;
  void encode_uncached(std::string_view word, BpeScratch& scratch, IdBuffer& out) const;
  std::int32_t find_whole(std::string_view word, BpeScratch& scratch) const;
  void split_to_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const;
  bool append_byte_tokens(std::string_view bytes, std::vector<std::int32_t>& symbols) const;
  void merge_short(BpeScratch& scratch) const;
  void merge_long(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<std::int32_t, 256> byte_ids_{};      // by byte, spelled in the byte alphabet
  std::array<std::int32_t, 256> fallback_ids_{};  // by byte, spelled "<0x0A>"
  std::array<std::int32_t, 128> ascii_ids_{};     // by character
  bool has_all_bytes_ = false;
  bool bytes_ = false;
};

}  // namespace quire::tokenizer_internal
