#pragma once
// A tokenizer as arrays of tokens, as GGUF files hold one, instead of a tokenizer.json.
//
// Ids and texts are those of the tokenizer.json that the file was converted from, as far as the
// arrays tell. They lack normalizers and patterns, which follow from the kind and the pattern's
// name, and whether an added token takes spaces along.
// Thread safety: a plain value and a free function.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/tokenizer.h"

namespace quire {

// What a token is, with GGUF's numbers.
enum class TokenKind : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // special: left out of text where special tokens are
  kUserDefined = 4,  // found in text before anything else, but no special token
  kUnused = 5,       // fills the vocabulary up
  kByte = 6,         // "<0x0A>"
};

struct TokenArrays {
  std::string kind;     // "gpt2": byte-level BPE with merges; "llama": SentencePiece's, with scores
  std::string pattern;  // of gpt2, how text is cut into words: "qwen2", "llama-bpe", "gpt-2", ...
  std::vector<std::string_view> tokens;  // by id; as tokenizer.json spells them
  std::vector<std::int32_t> kinds;       // of each token a TokenKind; none: BOS and EOS are control
  std::vector<float> scores;             // of each token, of llama
  std::vector<std::string_view> merges;  // of gpt2: "left right", the first to merge first
  std::optional<std::int32_t> bos_id;
  std::optional<std::int32_t> eos_id;
  std::optional<std::int32_t> unknown_id;
  // Whether encoding adds the token to a text; unset: what is usual for the kind.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  // Control tokens take the white space after them along, as those of Phi-3's tokenizer do.
  bool strips_after_control = false;
};

// Throws Error where the kind or the pattern is not known, and where the arrays don't fit together.
Tokenizer make_tokenizer(const TokenArrays& arrays);

}  // namespace quire
