#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "quire/error.h"
#include "tokenizer/utf8.h"

namespace quire::tokenizer_internal {

bool PatternTrie::add(std::string_view pattern, std::int32_t value) {
  std::uint32_t node = 0;
  starts_[static_cast<unsigned char>(pattern[0])] = true;
  for (const char byte : pattern) {
    const auto next = static_cast<std::uint32_t>(values_.size());
    const auto [child, is_new] = children_.try_emplace(edge(node, byte), next);
    if (is_new) values_.push_back(kNoValue);
    node = child->second;
  }
  if (values_[node] != kNoValue) return false;
  values_[node] = value;
  return true;
}

bool PatternTrie::find(std::string_view text, std::size_t from, Match& match) const {
  for (std::size_t start = from; start < text.size(); ++start) {
    if (!starts_[static_cast<unsigned char>(text[start])]) continue;
    match.value = kNoValue;
    std::uint32_t node = 0;
    for (std::size_t at = start; at < text.size(); ++at) {
      const auto child = children_.find(edge(node, text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (values_[node] != kNoValue) match = {start, at + 1, values_[node]};
    }
    if (match.value != kNoValue) return true;
  }
  return false;
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer,
                         const CharClasses& classes)
    : classes_(classes) {
  for (const AddedToken& token : tokens) {
    by_id_.insert_or_assign(token.id, token);
    by_content_.insert_or_assign(token.content, token.id);
    if (token.special) special_texts_.insert(token.content);
    has_special_normalized_ = has_special_normalized_ || (token.special && token.normalized);
    end_id_ = std::max(end_id_, token.id + 1);
  }
  for (const auto& [id, token] : by_id_) {
    std::string storage;
    std::string_view pattern = token.content;
    if (token.normalized) pattern = normalizer.run(token.content, storage);
    if (pattern.empty() || pattern.size() > kMaxBytes) {
      throw Error(
          fmt::format("tokenizer.json: the added token \"{}\" has {} bytes; 1 to {} are "
                      "supported.",
                      token.content, pattern.size(), kMaxBytes));
    }
    if (pattern != token.content) normalized_text_.emplace(id, pattern);
    if (!(token.normalized ? normalized_trie_ : raw_trie_).add(pattern, id)) {
      throw Error(
          fmt::format("tokenizer.json: two added tokens are found by the same text \"{}\"; "
                      "each needs its own.",
                      pattern));
    }
  }
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

std::int32_t AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? Vocabulary::kNone : found->second;
}

std::string_view AddedTokens::decoded_text(const AddedToken& token) const {
  const auto found = normalized_text_.find(token.id);
  return found == normalized_text_.end() ? token.content : found->second;
}

bool AddedTokens::is_special_text(std::string_view text) const {
  return special_texts_.contains(std::string(text));
}

bool AddedTokens::is_special(std::int32_t id) const {
  const AddedToken* token = find(id);
  return token != nullptr && token->special;
}

std::vector<std::int32_t> AddedTokens::special_ids() const {
  std::vector<std::int32_t> ids;
  for (const auto& [id, token] : by_id_) {
    if (token.special) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<TextSegment> AddedTokens::split_raw(std::string_view text,
                                                std::span<const TextSpan> plain) const {
  auto next = plain.begin();  // the first span that ends behind the match; matches come in order
  return split(text, raw_trie_, [&](const AddedToken& token, const PatternTrie::Match& match) {
    while (next != plain.end() && next->end <= match.start) ++next;
    return !token.special || next == plain.end() || next->begin >= match.end;
  });
}

std::vector<TextSegment> AddedTokens::split_normalized(std::string_view text,
                                                       bool take_special) const {
  return split(text, normalized_trie_, [&](const AddedToken& token, const PatternTrie::Match&) {
    return take_special || !token.special;
  });
}

bool AddedTokens::touches_word(std::string_view text, const PatternTrie::Match& match) const {
  return (match.start > 0 && classes_.is(decode_before(text, match.start).value, kWord)) ||
         (match.end < text.size() && classes_.is(decode_at(text, match.end).value, kWord));
}

std::size_t AddedTokens::skip_spaces_back(std::string_view text, std::size_t at) const {
  while (at > 0) {
    const CodePoint c = decode_before(text, at);
    if (!classes_.is(c.value, kSpace)) break;
    at -= c.size;
  }
  return at;
}

std::size_t AddedTokens::skip_spaces(std::string_view text, std::size_t at) const {
  while (at < text.size()) {
    const CodePoint c = decode_at(text, at);
    if (!classes_.is(c.value, kSpace)) break;
    at += c.size;
  }
  return at;
}

// `takes` says whether a match counts; where it does not, tokens inside of it still may.
template <class Takes>
std::vector<TextSegment> AddedTokens::split(std::string_view text, const PatternTrie& trie,
                                            const Takes& takes) const {
  if (trie.empty()) return {{0, text.size(), TextSegment::kText}};
  std::vector<TextSegment> segments;
  std::size_t done = 0;  // the end of the last token with the white space it took
  PatternTrie::Match match{};
  for (std::size_t from = 0; trie.find(text, from, match);) {
    const AddedToken& token = by_id_.at(match.value);
    if (!takes(token, match)) {
      from = match.start + 1;
      continue;
    }
    from = match.end;
    if (token.single_word && touches_word(text, match)) continue;
    std::size_t start = match.start;
    std::size_t end = match.end;
    if (token.lstrip) start = std::max(skip_spaces_back(text, start), done);
    if (token.rstrip) end = skip_spaces(text, end);
    if (done < start) segments.push_back({done, start, TextSegment::kText});
    segments.push_back({start, end, token.id});
    done = end;
  }
  if (done != text.size()) segments.push_back({done, text.size(), TextSegment::kText});
  return segments;
}

}  // namespace quire::tokenizer_internal
