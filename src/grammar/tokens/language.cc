#include "grammar/tokens/language.h"

#include <fmt/format.h>

#include <charconv>

#include "grammar/tokens/context_free_language.h"
#include "grammar/tokens/dfa_language.h"
#include "grammar/tokens/json_language.h"
#include "grammar/visible_text.h"
#include "quire/error.h"

namespace quire::grammar {

WhiteSpace parse_white_space(std::string_view text) {
  constexpr size_t kMostBytes = 1000;
  if (text == "none") return {.most_bytes = 0};
  if (text == "compact") return {.most_bytes = 1, .is_compact = true};
  size_t bytes = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const bool is_number = error == std::errc() && rest == text.data() + text.size();
  if (is_number && bytes >= 1 && bytes <= kMostBytes) return {.most_bytes = bytes};
  throw Error(fmt::format("expected none, compact or a number of bytes from 1 to {}, got '{}'",
                          kMostBytes, visible_text(text)));
}

LanguagePtr make_language(GrammarPtr grammar, const GenerationOptions& options,
                          const CompileLimits& limits) {
  Budget budget(limits);
  if (grammar->texts() != nullptr) return std::make_shared<DfaLanguage>(std::move(grammar), budget);
  if (grammar->rules() != nullptr) {
    return std::make_shared<ContextFreeLanguage>(std::move(grammar), budget);
  }
  return std::make_shared<JsonLanguage>(std::move(grammar), options, budget);
}

}  // namespace quire::grammar
