#pragma once
// Finds the tokenizer's next token where only some bytes of the text ahead are known.
//
// Thread safety: a free function of its arguments.
#include <cstdint>
#include <optional>
#include <string_view>

#include "grammar/tokens/token_trie.h"
#include "quire/tokenizer.h"

namespace quire {

struct KnownText {
  std::string_view before;  // the newest text, from where some token begins; may be empty
  std::string_view ahead;   // the bytes that have to follow it
  bool ends = false;        // nothing follows these
};

// The token with which the tokenizer begins `ahead` behind `before`, whatever follows. None where
// that depends on what follows, as a longer token may go on beyond `ahead`; and where the tokenizer
// would have no boundary behind `before`.
std::optional<int32_t> next_token(const Tokenizer& tokenizer, const grammar::TokenTrie& trie,
                                  const KnownText& known);

}  // namespace quire
