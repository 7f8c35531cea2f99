#include "grammar/tokens/language.h"

#include "grammar/tokens/context_free_language.h"
#include "grammar/tokens/dfa_language.h"
#include "grammar/tokens/json_language.h"

namespace quire::grammar {

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
