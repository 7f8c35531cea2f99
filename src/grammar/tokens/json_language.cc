#include "grammar/tokens/json_language.h"

#include <fmt/format.h>

#include "grammar/tokens/json_token_matcher.h"
#include "quire/error.h"

namespace quire::grammar {

JsonLanguage::JsonLanguage(GrammarPtr grammar, const GenerationOptions& options, Budget& budget)
    : grammar_(std::move(grammar)),
      options_(options),
      completion_(*grammar_->json(), budget),
      frames_(*grammar_->json(), completion_) {
  if (completion_.cost(this->grammar().root) != JsonCompletion::kNever) return;
  const std::string& left_out = completion_.left_out();
  throw Error(
      left_out.empty()
          ? fmt::format("#: the shortest value has more than {} bytes", JsonCompletion::kMost)
          : fmt::format("#: texts of it can be read but not generated, as these cannot: {}",
                        left_out));
}

std::unique_ptr<ByteMatcher> JsonLanguage::begin() const {
  return std::make_unique<JsonTokenMatcher>(*this);
}

}  // namespace quire::grammar
