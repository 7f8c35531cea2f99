#pragma once
// A compiled constraint, ready to generate from: where the matchers of its texts begin.
//
// Thread safety: immutable, but for caches that are locked; matchers are for one thread at a time.
#include <cstddef>
#include <memory>
#include <string_view>

#include "grammar/grammar.h"
#include "grammar/tokens/byte_matcher.h"

namespace quire::grammar {

class Language {
 public:
  Language() = default;
  virtual ~Language() = default;
  Language(const Language&) = delete;
  Language& operator=(const Language&) = delete;

  // At the beginning of a text. The language must outlive it.
  virtual std::unique_ptr<ByteMatcher> begin() const = 0;

  // Bytes of what its matchers have learnt of it so far and the next ones find: masks, states of
  // lexers. Thread safety: any thread.
  virtual size_t learnt_bytes() const = 0;
};

using LanguagePtr = std::shared_ptr<const Language>;

// What may be written between the tokens of JSON.
struct WhiteSpace {
  // 0: none. Else a space, or a line break and so many bytes with it.
  size_t most_bytes = 32;
  // Nothing but a space, and that behind colons and commas only.
  bool is_compact = false;
};

// "none", "compact" or a number of bytes from 1 to 1000. Throws Error for any other text.
WhiteSpace parse_white_space(std::string_view text);

struct GenerationOptions {
  WhiteSpace white_space;
};

// Throws Error for a grammar whose texts cannot be generated without dead ends, or past the limits.
LanguagePtr make_language(GrammarPtr grammar, const GenerationOptions& options = {},
                          const CompileLimits& limits = {});

}  // namespace quire::grammar
