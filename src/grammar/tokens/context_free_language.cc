#include "grammar/tokens/context_free_language.h"

#include "grammar/tokens/context_free_matcher.h"

namespace quire::grammar {

std::unique_ptr<ByteMatcher> ContextFreeLanguage::begin() const {
  return std::make_unique<ContextFreeMatcher>(tables_);
}

}  // namespace quire::grammar
