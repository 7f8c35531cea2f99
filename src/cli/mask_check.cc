#include "cli/mask_check.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "grammar/tokens/constraint.h"
#include "quire/model_text.h"

namespace quire::cli {
namespace {

grammar::TokenTriePtr make_trie(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    tokens.push_back(tokenizer.token_bytes(id));
  }
  return std::make_shared<const grammar::TokenTrie>(std::move(tokens));
}

// None of them a special token.
std::vector<int32_t> tokens_of(const Tokenizer& tokenizer, const std::string& text) {
  if (text.empty()) return {};
  const std::array<TextSpan, 1> all = {TextSpan{.begin = 0, .end = text.size()}};
  return tokenizer.encode(text, all, /*add_special_tokens=*/false);
}

}  // namespace

MaskChecker::MaskChecker(const std::filesystem::path& model)
    : tokenizer_(load_tokenizer(model)), trie_(make_trie(tokenizer_)) {}

bool MaskChecker::check(const grammar::LanguagePtr& language, const std::string& text,
                        std::vector<double>& times_us) const {
  using Clock = std::chrono::steady_clock;
  grammar::Constraint constraint(language, trie_);
  std::vector<uint32_t> mask(grammar::mask_words(trie_->num_tokens()));
  for (const int32_t token : tokens_of(tokenizer_, text)) {
    std::ranges::fill(mask, 0);
    const Clock::time_point begin = Clock::now();
    constraint.allow_tokens(grammar::Constraint::kAnyNumber, mask);
    times_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (!grammar::is_allowed(mask, token) || !constraint.accept(token)) return false;
  }
  return constraint.can_end();
}

}  // namespace quire::cli
