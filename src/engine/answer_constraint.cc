#include "engine/answer_constraint.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/utf8.h"

namespace quire {
namespace {

void forbid(grammar::TokenMask mask, int32_t token) {
  mask[static_cast<size_t>(token) / 32] &= ~(uint32_t{1} << (static_cast<size_t>(token) % 32));
}

// Whether a text of the language may begin like this.
bool may_begin(const grammar::Language& language, std::string_view text) {
  const auto matcher = language.begin();
  return std::ranges::all_of(text,
                             [&matcher](char c) { return matcher->push(static_cast<uint8_t>(c)); });
}

// Whether some token has more bytes and begins with all of these.
bool begins_a_token(const grammar::TokenTrie& trie, std::string_view text) {
  uint32_t node = grammar::TokenTrie::kRoot;
  for (const char c : text) {
    node = trie.child(node, static_cast<uint8_t>(c));
    if (node == grammar::TokenTrie::kNoNode) return false;
  }
  return trie.nodes()[node].end > node + 1;
}

// The longest beginning of `bytes` that is UTF-8; they may stop, or begin, within a character.
std::string_view whole_characters(std::string_view bytes) {
  return bytes.substr(0, tokenizer_internal::find_invalid_utf8(bytes).value_or(bytes.size()));
}

}  // namespace

AnswerConstraint::AnswerConstraint(AnswerLanguagePtr language)
    : language_(std::move(language)),
      is_free_(language_->start.has_value()),
      constraint_(language_->language, language_->trie) {}

void AnswerConstraint::allow_free_tokens(grammar::TokenMask mask) const {
  const size_t num_tokens = language_->trie->num_tokens();
  std::fill_n(mask.begin(), num_tokens / 32, ~uint32_t{0});
  if (num_tokens % 32 != 0) mask[num_tokens / 32] |= (uint32_t{1} << (num_tokens % 32)) - 1;
}

size_t AnswerConstraint::allow_tokens(grammar::TokenMask mask) {
  if (!is_free_) return constraint_.allow_tokens(grammar::Constraint::kAnyNumber, mask);
  allow_free_tokens(mask);
  for (const auto& crossing : start().crossings(start_state_)) {
    if (!may_begin(*language_->language, crossing.rest)) forbid(mask, crossing.token);
  }
  const size_t to_end = constraint_.tokens_to_end();
  const bool is_known = start().crossings(start_state_).empty() && to_end != SIZE_MAX;
  return is_known ? start().longest_plan() + to_end : SIZE_MAX;
}

bool AnswerConstraint::has_room(size_t tokens_left) {
  return tokens_left - 1 >= start().longest_plan() + constraint_.tokens_to_end();
}

bool AnswerConstraint::leads_on(std::string_view rest, size_t tokens_left) const {
  if (rest.empty()) return true;
  grammar::Constraint behind(constraint_);
  return behind.accept_bytes(rest) && behind.tokens_to_end() <= tokens_left - 1;
}

void AnswerConstraint::allow_tokens_in_time(size_t tokens_left, grammar::TokenMask mask) {
  if (tokens_left == 0) return;
  if (!is_free_) {
    constraint_.allow_tokens(tokens_left, mask);
    return;
  }
  if (has_room(tokens_left)) {
    allow_free_tokens(mask);
    for (const auto& crossing : start().crossings(start_state_)) {
      if (!leads_on(crossing.rest, tokens_left)) forbid(mask, crossing.token);
    }
  }
  grammar::allow(mask, start().plan(start_state_).front());
}

bool AnswerConstraint::leads_to_end(int32_t token, size_t tokens_left) {
  if (!is_free_) return constraint_.leads_to_end(token, tokens_left);
  if (tokens_left == 0) return false;
  if (token == start().plan(start_state_).front()) return true;
  const AnswerStart::Step taken = start().step(start_state_, token);
  return has_room(tokens_left) && (!taken.rest || leads_on(*taken.rest, tokens_left));
}

bool AnswerConstraint::accept(int32_t token) {
  if (!is_free_) return constraint_.accept(token);
  const AnswerStart::Step taken = start().step(start_state_, token);
  if (!taken.rest) {
    start_state_ = taken.state;
    return true;
  }
  if (!constraint_.accept_bytes(*taken.rest)) return false;
  is_free_ = false;
  return true;
}

std::optional<int32_t> AnswerConstraint::forced_token() {
  if (is_free_ || !language_->tokenizer) return std::nullopt;
  const grammar::ForcedText& forced = constraint_.forced_text();
  const std::string_view text = whole_characters(forced.text());
  if (text.empty()) return std::nullopt;
  const bool is_cut = text.size() < forced.text().size();
  if ((is_cut || !forced.ends()) && begins_a_token(*language_->trie, text)) return std::nullopt;
  const std::vector<TextSpan> plain = {{0, text.size()}};
  const std::vector<int32_t> tokens = language_->tokenizer->encode(text, plain, false);
  const std::string_view bytes = language_->trie->bytes(tokens.front());
  // Tokenizers may put a space before a text.
  return !bytes.empty() && text.starts_with(bytes) ? std::optional(tokens.front()) : std::nullopt;
}

size_t AnswerConstraint::tokens_to_end() {
  const size_t of_text = constraint_.tokens_to_end();
  if (!is_free_ || of_text == SIZE_MAX) return of_text;
  return start().plan(start_state_).size() + of_text;
}

}  // namespace quire
