// A text of a constraint, taken from its masks: a letter (r: an expression, c: choices, a line
// each, g: a grammar, j: a JSON Schema), the constraint up to the last line, and there
// bytes that say which of the allowed tokens come. What is allowed has to be the beginning of a
// text for the plain matcher, an end has to be its end, and an end has to be reached in time.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/tokens/constraint.h"
#include "grammar_limits.h"
#include "quire/error.h"

namespace {

using quire::check;
using quire::grammar::Constraint;
using quire::grammar::GrammarPtr;
using quire::grammar::LanguagePtr;
using quire::grammar::Matcher;

constexpr size_t kMaxTokens = 60;

quire::grammar::TokenTriePtr trie() {
  static const quire::grammar::TokenTriePtr kept = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* word :
         {"ab",   "abc", "aa",    "the",      " the", "  ",     "\n",           "\n\n",   "12",
          "123",  "0.5", "e+",    "\"a",      "\":",  "\": \"", "\",",          "\", \"", "{\"",
          "\"}",  "}}",  "]}",    "[[",       "],",   "()",     "((",           "))",     "true",
          "null", "\\n", "\\u00", "\xC3\xA9", "\xC3", "\xA9 ",  "\xF0\x9F\x98", "ab",     ""}) {
      tokens.emplace_back(word);
    }
    return std::make_shared<quire::grammar::TokenTrie>(std::move(tokens));
  }();
  return kept;
}

GrammarPtr compile_line(char kind, std::string_view text) {
  const auto limits = fuzz_limits(std::size_t{1} << 12);
  if (kind == 'r') return quire::grammar::compile_regex(text, limits);
  if (kind == 'g') return quire::grammar::compile_gbnf(text, limits);
  if (kind == 'j') return quire::grammar::compile_json_schema(text, limits);
  std::vector<std::string> choices;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    choices.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return quire::grammar::compile_choice(choices, limits);
}

bool advance(Matcher& matcher, std::string_view text) {
  for (const char c : text) {
    if (!matcher.advance(static_cast<uint8_t>(c))) return false;
  }
  return true;
}

std::vector<int32_t> allowed_tokens(Constraint& constraint, size_t tokens_left) {
  std::vector<uint32_t> mask(quire::grammar::mask_words(trie()->num_tokens()));
  constraint.allow_tokens(tokens_left, mask);
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < static_cast<int32_t>(trie()->num_tokens()); ++id) {
    if (quire::grammar::is_allowed(mask, id)) tokens.push_back(id);
  }
  return tokens;
}

void follow(const GrammarPtr& grammar, const LanguagePtr& language, std::string_view choices) {
  Constraint constraint(language, trie());
  Matcher matcher(grammar);
  std::string text;
  const size_t free_tokens = std::min(choices.size(), kMaxTokens);
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
    check(advance(matcher, trie()->bytes(token)), "an allowed token leads out of the grammar");
    check(!constraint.can_end() || matcher.can_end(), "an end that is none");
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
  check(quire::grammar::accepts(grammar, text), "the whole text is not accepted");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.rfind('\n');
  if (end == std::string_view::npos || end == 0) return 0;
  GrammarPtr grammar;
  LanguagePtr language;
  try {
    grammar = compile_line(input.front(), input.substr(1, end - 1));
    language = quire::grammar::make_language(grammar, {}, fuzz_limits(std::size_t{1} << 12));
  } catch (const quire::Error&) {
    return 0;  // What is wrong with the constraint has been said.
  }
  follow(grammar, language, input.substr(end + 1));
  return 0;
}
