#pragma once
// Tokens that are found in text as they are written, before BPE sees it: <|im_start|>, </s>,
// <think>. Immutable once made; any thread. Errors: quire::Error, naming the field.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "quire/text_span.h"
#include "tokenizer/char_classes.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/vocabulary.h"

namespace quire::tokenizer_internal {

// One of the added_tokens of tokenizer.json.
struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = false;   // is looked for in the normalised text, normalised itself
  bool special = false;      // may be left out when decoding
};

// Finds the longest of a set of patterns that starts first.
class PatternTrie {
 public:
  struct Match {
    std::size_t start;
    std::size_t end;
    std::int32_t value;
  };

  // Returns false when the pattern is there already.
  bool add(std::string_view pattern, std::int32_t value);
  bool empty() const { return children_.empty(); }

  // The first match at or after `from`, the longest of those; false when there is none.
  bool find(std::string_view text, std::size_t from, Match& match) const;

 private:
  static constexpr std::int32_t kNoValue = -1;
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }

  std::unordered_map<std::uint64_t, std::uint32_t>
      children_;                                // (node, byte) -> node; 0 is the root
  std::vector<std::int32_t> values_{kNoValue};  // by node
  std::array<bool, 256> starts_{};
};

// A stretch of text: an added token, or what lies between two (id kText).
struct TextSegment {
  static constexpr std::int32_t kText = -1;
  std::size_t start;
  std::size_t end;
  std::int32_t id;
};

class AddedTokens {
 public:
  // Longer tokens are refused: looking for one costs up to its length at every byte of the text.
  static constexpr std::size_t kMaxBytes = 1024;

  // `classes` must outlive the result.
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer,
              const CharClasses& classes);

  // nullptr when the id is no added token's.
  const AddedToken* find(std::int32_t id) const;
  // kNone when there is none.
  std::int32_t find(std::string_view content) const;

  // The token's text when it is decoded: the normalised form of a normalised token.
  std::string_view decoded_text(const AddedToken& token) const;
  // Whether a token with this text is left out when special tokens are.
  bool is_special_text(std::string_view text) const;

  // The tokens found in the text before normalisation; special ones only where they do not touch
  // `plain`.
  std::vector<TextSegment> split_raw(std::string_view text, std::span<const TextSpan> plain) const;
  // The tokens found in normalised text, without special ones where `take_special` is false.
  std::vector<TextSegment> split_normalized(std::string_view text, bool take_special) const;
  // Whether split_normalized() can find a special token.
  bool has_special_normalized() const { return has_special_normalized_; }
  bool is_special(std::int32_t id) const;
  // The ids of all special tokens, ascending.
  std::vector<std::int32_t> special_ids() const;

  // One more than the largest id.
  std::int32_t end_id() const { return end_id_; }

 private:
  template <class Takes>
  std::vector<TextSegment> split(std::string_view text, const PatternTrie& trie,
                                 const Takes& takes) const;
  bool touches_word(std::string_view text, const PatternTrie::Match& match) const;
  std::size_t skip_spaces_back(std::string_view text, std::size_t at) const;
  std::size_t skip_spaces(std::string_view text, std::size_t at) const;

  const CharClasses& classes_;
  std::unordered_map<std::int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, std::int32_t> by_content_;
  std::unordered_map<std::int32_t, std::string> normalized_text_;
  std::unordered_set<std::string> special_texts_;
  PatternTrie raw_trie_;
  PatternTrie normalized_trie_;
  std::int32_t end_id_ = 0;
  bool has_special_normalized_ = false;
};

}  // namespace quire::tokenizer_internal
