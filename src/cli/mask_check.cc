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
  auto trie = std::make_shared<const grammar::TokenTrie>(std::move(tokens));
  trie->string_tokens(grammar::TokenTrie::kRoot);  // which most schemas need
  return trie;
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

MaskedText MaskChecker::check(const grammar::LanguagePtr& language, const std::string& text,
                              bool keeps_masks) const {
  using Clock = std::chrono::steady_clock;
  grammar::Constraint constraint(language, trie_);
  MaskedText masked;
  masked.token_ids = tokens_of(tokenizer_, text);
  std::vector<uint32_t> mask(grammar::mask_words(trie_->num_tokens()));
  for (size_t i = 0; keeps_masks || i < masked.token_ids.size(); ++i) {
    std::ranges::fill(mask, 0);
    const Clock::time_point begin = Clock::now();
    constraint.allow_tokens(grammar::Constraint::kAnyNumber, mask);
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    masked.times_us.push_back(time.count());
    if (keeps_masks) masked.masks.push_back(mask);
    if (i == masked.token_ids.size()) break;
    const int32_t token = masked.token_ids[i];
    if (!grammar::is_allowed(mask, token) || !constraint.accept(token)) return masked;
  }
  masked.is_generated = constraint.can_end();
  return masked;
}

}  // namespace quire::cli
