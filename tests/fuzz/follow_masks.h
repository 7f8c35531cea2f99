#pragma once
// Goes through a language by its masks, beside a plain reference that says what a text of it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/tokens/constraint.h"
#include "grammar_limits.h"

namespace quire::fuzz {

inline grammar::CompileLimits mask_limits() {
  return fuzz_limits(std::size_t{1} << 12);
}

inline grammar::TokenTriePtr trie() {
  static const grammar::TokenTriePtr kept = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* word :
         {"ab",   "abc", "aa",    "the",      " the", "  ",     "\n",           "\n\n",   "12",
          "123",  "0.5", "e+",    "\"a",      "\":",  "\": \"", "\",",          "\", \"", "{\"",
          "\"}",  "}}",  "]}",    "[[",       "],",   "()",     "((",           "))",     "true",
          "null", "\\n", "\\u00", "\xC3\xA9", "\xC3", "\xA9 ",  "\xF0\x9F\x98", "ab",     ""}) {
      tokens.emplace_back(word);
    }
    return std::make_shared<grammar::TokenTrie>(std::move(tokens));
  }();
  return kept;
}

inline std::vector<int32_t> allowed_tokens(grammar::Constraint& constraint, size_t tokens_left) {
  std::vector<uint32_t> mask(grammar::mask_words(trie()->num_tokens()));
  constraint.allow_tokens(tokens_left, mask);
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < static_cast<int32_t>(trie()->num_tokens()); ++id) {
    if (grammar::is_allowed(mask, id)) tokens.push_back(id);
  }
  return tokens;
}

// `choices` says which of the allowed tokens come. What is allowed has to be the beginning of a
// text for the reference, an end has to be its end, and an end has to be reached in time. The
// reference has advance(bytes), false where no text goes on, can_end() and accepts(text).
template <typename Reference>
void follow_masks(const grammar::LanguagePtr& language, Reference& reference,
                  std::string_view choices, size_t max_tokens = 60) {
  using grammar::Constraint;
  Constraint constraint(language, trie());
  std::string text;
  const size_t free_tokens = std::min(choices.size(), max_tokens);
  const size_t first_bytes = choices.empty() ? 0 : static_cast<uint8_t>(choices[0]);
  size_t tokens_left = constraint.tokens_to_end() + first_bytes % 32;
  const bool is_limited = first_bytes >= 128;
  for (size_t i = 0; is_limited ? tokens_left > 0 : i < free_tokens; ++i) {
    check(!is_limited || constraint.tokens_to_end() <= tokens_left, "there is no time to end");
    const std::vector<int32_t> tokens =
        allowed_tokens(constraint, is_limited ? tokens_left : Constraint::kAnyNumber);
    check(constraint.can_end() || !tokens.empty(), "a dead end");
    check(tokens.empty() || !constraint.must_end(), "a token behind the end");
    if (tokens.empty()) break;
    const size_t choice = i < choices.size() ? static_cast<uint8_t>(choices[i]) : 0;
    const int32_t token = tokens[choice * 7 % tokens.size()];
    check(constraint.allows(token) && constraint.accept(token), "an allowed token is not taken");
    text += trie()->bytes(token);
    check(reference.advance(trie()->bytes(token)), "an allowed token leads out of the grammar");
    check(!constraint.can_end() || reference.can_end(), "an end that is none");
    if (is_limited) --tokens_left;
  }
  if (is_limited) check(constraint.can_end(), "no end in time");
  while (!constraint.can_end()) {
    const size_t to_end = constraint.tokens_to_end();
    const std::vector<int32_t> tokens = allowed_tokens(constraint, to_end);
    check(!tokens.empty(), "no way to the end");
    check(constraint.accept(tokens.front()), "the way to the end is not taken");
    text += trie()->bytes(tokens.front());
    check(constraint.tokens_to_end() < to_end, "the end does not come nearer");
  }
  check(reference.accepts(text), "the whole text is not accepted");
}

}  // namespace quire::fuzz
