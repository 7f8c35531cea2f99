#include "engine/answer_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "quire/error.h"

namespace quire {

using grammar::TokenTrie;

AnswerStart::AnswerStart(std::string marker, std::optional<int32_t> special,
                         grammar::TokenTriePtr trie)
    : marker_(std::move(marker)), special_(special), trie_(std::move(trie)) {
  check(!marker_.empty() && marker_.size() <= kMaxBytes, "the marker has some bytes");
  make_automaton();
  make_plans();
  find_crossings();
}

void AnswerStart::make_automaton() {
  next_.assign(marker_.size(), {});
  size_t fallback = 0;  // the state of the marker without its first byte
  for (size_t state = 0; state < marker_.size(); ++state) {
    if (state > 0) next_[state] = next_[fallback];
    const auto byte = static_cast<uint8_t>(marker_[state]);
    if (state > 0) fallback = next_[fallback][byte];
    next_[state][byte] = static_cast<uint8_t>(state + 1);
  }
}

void AnswerStart::make_plans() {
  plans_.resize(marker_.size());
  for (size_t state = 0; state < marker_.size(); ++state) {
    if (special_) {
      plans_[state] = {*special_};
      continue;
    }
    for (std::string_view rest = std::string_view(marker_).substr(state); !rest.empty();) {
      const int32_t token = trie_->longest(rest);
      if (token == TokenTrie::kNone) {
        throw Error(fmt::format(
            "The constraint begins after \"{}\", for which the model has no tokens.", marker_));
      }
      plans_[state].push_back(token);
      rest.remove_prefix(trie_->bytes(token).size());
    }
  }
  for (const auto& plan : plans_) longest_plan_ = std::max(longest_plan_, plan.size());
}

void AnswerStart::find_crossings() {
  crossings_.resize(marker_.size());
  for (size_t token = 0; token < trie_->num_tokens(); ++token) {
    const auto id = static_cast<int32_t>(token);
    // Without a byte of the marker's last, it does not end in the token.
    if (trie_->bytes(id).find(marker_.back()) == std::string_view::npos) continue;
    for (size_t state = 0; state < marker_.size(); ++state) {
      const Step taken = step(state, id);
      if (taken.rest && !taken.rest->empty()) crossings_[state].push_back({id, *taken.rest});
    }
  }
}

AnswerStart::Step AnswerStart::step(size_t state, int32_t token) const {
  if (special_ && token == *special_) return {0, std::string_view()};
  if (token < 0 || static_cast<size_t>(token) >= trie_->num_tokens()) return {state, std::nullopt};
  const std::string_view bytes = trie_->bytes(token);
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = next_[state][static_cast<uint8_t>(bytes[i])];
    if (state == marker_.size()) return {0, bytes.substr(i + 1)};
  }
  return {state, std::nullopt};
}

}  // namespace quire
