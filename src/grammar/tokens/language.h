#pragma once
// A compiled constraint, ready to generate from: where the matchers of its texts begin.
//
// Thread safety: immutable, but for caches that are locked; matchers are for one thread at a time.
#include <cstddef>
#include <memory>

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
};

using LanguagePtr = std::shared_ptr<const Language>;

struct GenerationOptions {
  // White space between the tokens of JSON: a space, or a line break and so many bytes with it.
  size_t max_white_space = 32;
};

// Throws Error for a grammar whose texts cannot be generated without dead ends, or past the limits.
LanguagePtr make_language(GrammarPtr grammar, const GenerationOptions& options = {},
                          const CompileLimits& limits = {});

}  // namespace quire::grammar
