#include "grammar/tokens/json_language.h"

#include <fmt/format.h>

#include <algorithm>

#include "grammar/tokens/json_token_matcher.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

// Enough that the threads of a machine seldom meet; each learns for itself, which takes time and
// memory.
constexpr size_t kMostLearnt = 8;
constexpr size_t kMaxTokensBytes = 16 << 20;  // of what they remember of tokens, together
constexpr size_t kMaxLearntBytes = 48 << 20;  // with the states of their lexers

}  // namespace

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

std::shared_ptr<JsonLanguage::Learnt> JsonLanguage::share_learnt() const {
  const std::scoped_lock lock(mutex_);
  // States are numbers in their lexer, so what has become too large cannot forget some.
  const size_t most_bytes = kMaxLearntBytes / std::max<size_t>(1, learnt_.size());
  std::erase_if(
      learnt_, [&](const std::shared_ptr<Learnt>& learnt) { return learnt->bytes() > most_bytes; });
  const auto is_unused = [](const std::shared_ptr<Learnt>& learnt) {
    return learnt.use_count() == 1;
  };
  const auto unused = std::ranges::find_if(learnt_, is_unused);
  std::shared_ptr<Learnt> chosen;
  if (unused != learnt_.end()) {
    chosen = *unused;
    std::erase_if(learnt_, is_unused);
  } else if (learnt_.size() < kMostLearnt) {
    chosen = learnt_.emplace_back(std::make_shared<Learnt>());
  } else {
    return *std::ranges::min_element(
        learnt_, {}, [](const std::shared_ptr<Learnt>& learnt) { return learnt.use_count(); });
  }
  for (const auto& learnt : learnt_) {
    learnt->automaton_tokens.limit(kMaxTokensBytes / learnt_.size());
  }
  return chosen;
}

size_t JsonLanguage::learnt_bytes() const {
  const std::scoped_lock lock(mutex_);
  size_t bytes = 0;
  for (const auto& learnt : learnt_) bytes += learnt->bytes();
  return bytes;
}

std::unique_ptr<ByteMatcher> JsonLanguage::begin() const {
  return std::make_unique<JsonTokenMatcher>(*this);
}

}  // namespace quire::grammar
