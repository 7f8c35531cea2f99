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

#include "follow_masks.h"
#include "grammar/grammar.h"
#include "quire/error.h"

namespace {

using quire::grammar::GrammarPtr;
using quire::grammar::LanguagePtr;
using quire::grammar::Matcher;

GrammarPtr compile_line(char kind, std::string_view text) {
  const auto limits = quire::fuzz::mask_limits();
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

// The plain matcher, beside the text that the masks let through.
class PlainMatcher {
 public:
  explicit PlainMatcher(const GrammarPtr& grammar) : grammar_(grammar), matcher_(grammar) {}

  bool advance(std::string_view bytes) {
    for (const char c : bytes) {
      if (!matcher_.advance(static_cast<uint8_t>(c))) return false;
    }
    return true;
  }
  bool can_end() const { return matcher_.can_end(); }
  bool accepts(std::string_view text) const { return quire::grammar::accepts(grammar_, text); }

 private:
  GrammarPtr grammar_;
  Matcher matcher_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.rfind('\n');
  if (end == std::string_view::npos || end == 0) return 0;
  GrammarPtr grammar;
  LanguagePtr language;
  try {
    grammar = compile_line(input.front(), input.substr(1, end - 1));
    language = quire::grammar::make_language(grammar, {}, quire::fuzz::mask_limits());
  } catch (const quire::Error&) {
    return 0;  // What is wrong with the constraint has been said.
  }
  PlainMatcher matcher(grammar);
  quire::fuzz::follow_masks(language, matcher, input.substr(end + 1));
  return 0;
}
