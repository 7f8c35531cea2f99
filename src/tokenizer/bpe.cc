#include "tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {
namespace {

// Up to here the linear search, which moves no pointers, beats the heap.
constexpr std::size_t kMaxShortSymbols = 64;

constexpr std::int32_t kRemoved = -1;

// Heap entries order by rank, then by position.
std::uint64_t heap_entry(std::uint32_t rank, std::size_t position) {
  return static_cast<std::uint64_t>(rank) << 32 | position;
}

}  // namespace

bool has_inner_marker(std::string_view token) {
  while (token.starts_with(kMarker)) token.remove_prefix(kMarker.size());
  return token.find(kMarker) != std::string_view::npos;
}

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, const BpeOptions& options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(options) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(spelled, kByteAlphabet.char_of[byte]);
    byte_ids_[byte] = vocabulary_.find(spelled);
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  }
  for (std::size_t c = 0; c < ascii_ids_.size(); ++c) {
    ascii_ids_[c] = vocabulary_.find(std::string(1, static_cast<char>(c)));
  }
  has_all_bytes_ = std::ranges::find(byte_ids_, Vocabulary::kNone) == byte_ids_.end();
}

void Bpe::encode_marked(std::string_view text, const char* readable_end, BpeScratch& scratch,
                        IdBuffer& out) const {
  std::size_t start = 0;
  std::size_t at = 0;  // behind the last marker looked at
  while (true) {
    const std::size_t marker = text.find(kMarker, at);
    const std::size_t end = std::min(marker, text.size());
    // A run of markers stays together: merges may join them.
    const bool in_run = marker == at && at > 0;
    if (end > start && !in_run) {
      encode_part(text.substr(start, end - start), readable_end, scratch, out);
      start = end;
    }
    if (marker == std::string_view::npos) break;
    at = marker + kMarker.size();
  }
  if (start < text.size()) encode_part(text.substr(start), readable_end, scratch, out);
}

void Bpe::encode_uncached(std::string_view word, BpeScratch& scratch, IdBuffer& out) const {
  if (options_.ignore_merges) {
    const std::int32_t id = find_whole(word, scratch);
    if (id != Vocabulary::kNone) {
      out.append(id);
      return;
    }
  }
  split_to_symbols(word, scratch.symbols_);
  if (scratch.symbols_.size() <= kMaxShortSymbols) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  out.append(scratch.symbols_);
}

std::int32_t Bpe::find_whole(std::string_view word, BpeScratch& scratch) const {
  if (!bytes_) return vocabulary_.find(word);
  scratch.spelled_.clear();
  append_spelled_bytes(scratch.spelled_, word);
  return vocabulary_.find(scratch.spelled_);
}

bool Bpe::append_byte_tokens(std::string_view bytes, std::vector<std::int32_t>& symbols) const {
  const std::size_t start = symbols.size();
  for (const char c : bytes) {
    const std::int32_t id = fallback_ids_[static_cast<unsigned char>(c)];
    if (id == Vocabulary::kNone) {
      symbols.resize(start);
      return false;
    }
    symbols.push_back(id);
  }
  return true;
}

void Bpe::split_to_symbols(std::string_view word, std::vector<std::int32_t>& symbols) const {
  symbols.clear();
  if (bytes_) {
    for (const char c : word) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    return;
  }
  // As in Hugging Face's library, an unknown token waits for the next known character or the next
  // unknown one, and byte tokens overtake it.
  bool unknown_waits = false;
  for (std::size_t at = 0, size = 0; at < word.size(); at += size) {
    const CodePoint c = decode_at(word, at);
    size = c.size;
    const std::string_view spelling = word.substr(at, size);
    const std::int32_t id =
        c.value < ascii_ids_.size() ? ascii_ids_[c.value] : vocabulary_.find(spelling);
    if (id != Vocabulary::kNone) {
      if (std::exchange(unknown_waits, false)) symbols.push_back(options_.unk_id);
      symbols.push_back(id);
      continue;
    }
    if (options_.byte_fallback && append_byte_tokens(spelling, symbols)) continue;
    if (options_.unk_id == Vocabulary::kNone) continue;
    if (unknown_waits && !options_.fuse_unk) symbols.push_back(options_.unk_id);
    unknown_waits = true;
  }
  if (unknown_waits) symbols.push_back(options_.unk_id);
}

void Bpe::merge_short(BpeScratch& scratch) const {
  std::vector<std::int32_t>& symbols = scratch.symbols_;
  std::vector<Merge>& pairs = scratch.pairs_;  // pairs[i] joins symbols i and i + 1
  pairs.clear();
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    pairs.push_back(merges_.find(symbols[i], symbols[i + 1]));
  }
  while (!pairs.empty()) {
    const auto best = std::ranges::min_element(pairs, {}, &Merge::rank);
    if (best->rank == Merge::kNoRank) return;
    const auto i = static_cast<std::size_t>(best - pairs.begin());
    symbols[i] = best->id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    pairs.erase(best);
    if (i > 0) pairs[i - 1] = merges_.find(symbols[i - 1], symbols[i]);
    if (i < pairs.size()) pairs[i] = merges_.find(symbols[i], symbols[i + 1]);
  }
}

void Bpe::merge_long(BpeScratch& scratch) const {
  std::vector<std::int32_t>& symbols = scratch.symbols_;
  std::vector<std::int32_t>& previous = scratch.previous_;
  std::vector<std::int32_t>& next = scratch.next_;
  std::vector<std::uint64_t>& heap = scratch.heap_;
  const auto count = static_cast<std::int32_t>(symbols.size());
  previous.resize(symbols.size());
  next.resize(symbols.size());
  heap.clear();
  for (std::int32_t i = 0; i < count; ++i) {
    previous[i] = i - 1;
    next[i] = i + 1;
    if (i + 1 == count) break;
    const Merge merge = merges_.find(symbols[i], symbols[i + 1]);
    if (merge.rank != Merge::kNoRank) heap.push_back(heap_entry(merge.rank, i));
  }
  std::ranges::make_heap(heap, std::greater<>());

  const auto push_pair = [&](std::int32_t left, std::int32_t right) {
    const Merge merge = merges_.find(symbols[left], symbols[right]);
    if (merge.rank == Merge::kNoRank) return;
    heap.push_back(heap_entry(merge.rank, left));
    std::ranges::push_heap(heap, std::greater<>());
  };
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto left = static_cast<std::int32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    const std::int32_t right = next[left];
    if (symbols[left] == kRemoved || right == count) continue;
    // The pair may have changed since the entry was made.
    const Merge merge = merges_.find(symbols[left], symbols[right]);
    if (merge.rank != rank) continue;
    symbols[left] = merge.id;
    symbols[right] = kRemoved;
    next[left] = next[right];
    if (next[left] < count) {
      previous[next[left]] = left;
      push_pair(left, next[left]);
    }
    if (previous[left] >= 0) push_pair(previous[left], left);
  }
  std::erase(symbols, kRemoved);
}

}  // namespace quire::tokenizer_internal
