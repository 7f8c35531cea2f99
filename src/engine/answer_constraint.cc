#include "engine/answer_constraint.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "engine/tokenizer_cut.h"

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

bool AnswerConstraint::accept(int32_t token, size_t tokens_left) {
  const bool accepted = accept_token(token, tokens_left);
  if (accepted) remember(token);
  return accepted;
}

bool AnswerConstraint::accept_token(int32_t token, size_t tokens_left) {
  if (!is_free_) return constraint_.accept(token, tokens_left);
  const AnswerStart::Step taken = start().step(start_state_, token);
  if (!taken.rest) {
    start_state_ = taken.state;
    return true;
  }
  if (!constraint_.accept_bytes(*taken.rest)) return false;
  is_free_ = false;
  return true;
}

void AnswerConstraint::remember(int32_t token) {
  const auto num_tokens = static_cast<int32_t>(language_->trie->num_tokens());
  const std::string_view bytes =
      token < num_tokens ? language_->trie->bytes(token) : std::string_view();
  if (bytes.empty()) {
    newest_text_.clear();
    newest_bytes_.fill(0);
    return;
  }
  newest_text_.erase(0, newest_bytes_.front());
  newest_text_ += bytes;
  std::rotate(newest_bytes_.begin(), newest_bytes_.begin() + 1, newest_bytes_.end());
  newest_bytes_.back() = bytes.size();
}

std::optional<int32_t> AnswerConstraint::forced_token() {
  if (is_free_ || !language_->tokenizer) return std::nullopt;
  const grammar::ForcedText& forced = constraint_.forced_text();
  if (forced.text().empty()) return std::nullopt;
  const auto first = std::ranges::find_if(newest_text_, begins_character);
  const std::string_view before(first, newest_text_.end());
  return next_token(*language_->tokenizer, *language_->trie,
                    {.before = before, .ahead = forced.text(), .ends = forced.ends()});
}

size_t AnswerConstraint::tokens_to_end() {
  const size_t of_text = constraint_.tokens_to_end();
  if (!is_free_ || of_text == SIZE_MAX) return of_text;
  return start().plan(start_state_).size() + of_text;
}

}  // namespace quire
