#include "grammar/tokens/language.h"

#include "grammar/tokens/dfa_language.h"
#include "grammar/tokens/json_language.h"
#include "quire/error.h"

namespace quire::grammar {

LanguagePtr make_language(GrammarPtr grammar, const GenerationOptions& options,
                          const CompileLimits& limits) {
  Budget budget(limits);
  if (grammar->texts() != nullptr) return std::make_shared<DfaLanguage>(std::move(grammar), budget);
  if (grammar->json() != nullptr) {
    return std::make_shared<JsonLanguage>(std::move(grammar), options, budget);
  }
  throw Error("only regular expressions and choices can be generated");
}

}  // namespace quire::grammar
