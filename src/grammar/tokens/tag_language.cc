#include "grammar/tokens/tag_language.h"

#include "grammar/tokens/tag_matcher.h"
#include "grammar/tokens/tag_tables.h"

namespace quire::grammar {
namespace {

class TagLanguage final : public Language {
 public:
  TagLanguage(TagOptions options, Budget& budget) : tables_(std::move(options), budget) {}
  std::unique_ptr<ByteMatcher> begin() const override {
    return std::make_unique<TagMatcher>(tables_);
  }
  size_t learnt_bytes() const override {
    size_t bytes = tables_.masks().bytes();
    for (const Tag& tag : tables_.options().tags) bytes += tag.inner->learnt_bytes();
    return bytes;
  }

 private:
  TagTables tables_;
};

}  // namespace

LanguagePtr make_tags(TagOptions options, const CompileLimits& limits) {
  Budget budget(limits);
  return std::make_shared<TagLanguage>(std::move(options), budget);
}

}  // namespace quire::grammar
