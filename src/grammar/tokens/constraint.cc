#include "grammar/tokens/constraint.h"

#include <string>
#include <string_view>

namespace quire::grammar {

Constraint::Constraint(LanguagePtr language, TokenTriePtr trie)
    : language_(std::move(language)), trie_(std::move(trie)), matcher_(language_->begin()) {}

Constraint::Constraint(const Constraint& other)
    : language_(other.language_),
      trie_(other.trie_),
      matcher_(other.matcher_->clone()),
      plan_(other.plan_),
      has_plan_(other.has_plan_),
      plan_fails_(other.plan_fails_) {
  if (other.forced_text_) forced_text_.emplace(*other.forced_text_);
}

void Constraint::make_plan() {
  if (has_plan_) return;
  has_plan_ = true;
  plan_fails_ = false;
  plan_.clear();
  const std::string ending = matcher_->ending();
  for (std::string_view rest = ending; !rest.empty();) {
    const int32_t token = trie_->longest(rest);
    if (token == TokenTrie::kNone) {
      plan_fails_ = true;
      plan_.clear();
      return;
    }
    plan_.push_back(token);
    rest.remove_prefix(trie_->bytes(token).size());
  }
}

size_t Constraint::tokens_to_end() {
  make_plan();
  return plan_fails_ ? SIZE_MAX : plan_.size();
}

size_t Constraint::allow_tokens(size_t tokens_left, TokenMask mask) {
  if (tokens_left == kAnyNumber) {
    return matcher_->allow_tokens(*trie_, ByteMatcher::kNoEnding, mask);
  }
  if (tokens_left == 0) return kAnyNumber;
  // Every byte is a token or less of one, so an ending takes no more tokens than bytes. It may take
  // fewer: the known ending is always allowed to go on.
  matcher_->allow_tokens(*trie_, tokens_left - 1, mask);
  make_plan();
  if (!plan_.empty()) allow(mask, plan_.front());
  return kAnyNumber;
}

bool Constraint::push(std::string_view bytes) {
  size_t taken = 0;
  for (const char c : bytes) {
    if (!matcher_->push(static_cast<uint8_t>(c))) {
      matcher_->pop(taken);
      return false;
    }
    ++taken;
  }
  return true;
}

void Constraint::commit(std::string_view bytes) {
  matcher_->commit();
  if (!forced_text_) return;
  if (forced_text_->text().empty() || bytes.size() > forced_text_->text().size()) {
    forced_text_.reset();
  } else {
    forced_text_->drop(bytes.size());
  }
}

bool Constraint::allows(int32_t token) {
  const std::string_view bytes = trie_->bytes(token);
  if (bytes.empty() || !push(bytes)) return false;
  matcher_->pop(bytes.size());
  return true;
}

bool Constraint::leads_to_end(int32_t token, size_t tokens_left) {
  if (tokens_left == kAnyNumber) return allows(token);
  const std::string_view bytes = trie_->bytes(token);
  if (tokens_left == 0 || bytes.empty() || !push(bytes)) return false;
  const size_t ending_bytes = matcher_->ending_bytes();
  matcher_->pop(bytes.size());
  if (ending_bytes <= tokens_left - 1) return true;
  make_plan();
  return !plan_.empty() && plan_.front() == token;
}

bool Constraint::accept(int32_t token, size_t tokens_left) {
  const std::string_view bytes = trie_->bytes(token);
  if (bytes.empty() || !push(bytes)) return false;
  if (tokens_left != kAnyNumber) {
    // Only the plan may lead to an end in time. It is the one from before the token.
    const bool needs_plan = matcher_->ending_bytes() > tokens_left - 1;
    if (needs_plan && !has_plan_) {
      matcher_->pop(bytes.size());
      make_plan();
      push(bytes);
    } else if (!needs_plan) {
      has_plan_ = false;
      matcher_->forget_ending();
    }
  }
  commit(bytes);
  if (has_plan_ && !plan_.empty() && plan_.front() == token) {
    plan_.pop_front();
  } else {
    has_plan_ = false;
  }
  return true;
}

bool Constraint::accept_bytes(std::string_view bytes) {
  if (!push(bytes)) return false;
  commit(bytes);
  has_plan_ = has_plan_ && bytes.empty();
  return true;
}

const ForcedText& Constraint::forced_text() {
  if (!forced_text_) forced_text_.emplace(matcher_->clone());
  return *forced_text_;
}

}  // namespace quire::grammar
