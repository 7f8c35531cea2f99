// How generated JSON comes to its end: in how many bytes, and with which.
#include <algorithm>

#include "grammar/string_reader.h"
#include "grammar/tokens/json_token_matcher.h"

namespace quire::grammar {

template <typename Visit>
void JsonTokenMatcher::for_each_value_ending(const State& at, const Visit& visit) const {
  if (at.phase == Phase::kInString) return learnt().strings.for_each_ending(at.lexer, visit);
  if (at.phase == Phase::kInNumber) return learnt().numbers.for_each_ending(at.lexer, visit);
  const uint64_t results = literal_results(at);
  const size_t rest = literal_text(at.literal).size() - (text_.size() - at.begin);
  for (uint32_t slot = 0; slot < at.context->slots.size(); ++slot) {
    if ((results >> slot & 1) != 0) visit(slot, static_cast<uint32_t>(rest));
  }
}

uint32_t JsonTokenMatcher::key_cost(const State& at) const {
  const JsonKeys& keys = *at.context->keys;
  const auto written = static_cast<uint32_t>(text_.size() - at.begin);
  uint32_t best = JsonCompletion::kNever;
  for (uint32_t i = at.listed_begin; i < at.listed_end; ++i) {
    best = std::min(best, keys.listed[i].cost - written);
  }
  if (at.lexer == StringLexer::kDead) return best;
  if (!learnt().strings.is_endless(at.lexer)) {
    // The shortest name may be one that is used.
    const uint32_t bytes = learnt().strings.most_ending_bytes(at.lexer);
    return std::min(best, JsonCompletion::sum(bytes, keys.other_cost));
  }
  learnt().strings.for_each_ending(at.lexer, [&](uint32_t, uint32_t bytes) {
    best = std::min(best, JsonCompletion::sum(bytes, keys.other_cost));
  });
  return best;
}

uint32_t JsonTokenMatcher::cost(const State& at) const {
  if (at.ending != nullptr) return static_cast<uint32_t>(at.ending->size());
  return JsonCompletion::sum(shortest(at), detour_bytes(at));
}

// Another ending than the shortest may be needed so that nothing is repeated.
uint32_t JsonTokenMatcher::detour_bytes(const State& at) {
  constexpr uint32_t kMost = 64;
  return all_differ(at) ? 0 : kMost;
}

uint32_t JsonTokenMatcher::shortest(const State& at) const {
  switch (at.phase) {
    case Phase::kValue:
      return frames().value_cost(*at.context);
    case Phase::kFirstItem:
    case Phase::kFirstKey:
    case Phase::kAfterValue:
      return frames().container_cost(*at.context);
    case Phase::kKey:
      return at.context->frame->member_cost;
    case Phase::kColon:
      return JsonCompletion::sum(1, frames().value_cost(*at.context));
    case Phase::kInKey:
      return key_cost(at);
    case Phase::kDone:
      return 0;
    default:
      break;
  }
  uint32_t best = JsonCompletion::kNever;
  for_each_value_ending(at, [&](uint32_t slot, uint32_t bytes) {
    best = std::min(best, JsonCompletion::sum(bytes, at.context->slots[slot].outer));
  });
  return best;
}

size_t JsonTokenMatcher::ending_bytes() const {
  const auto lock = this->lock();
  return cost(states_.back());
}

std::string JsonTokenMatcher::ending() const {
  const auto lock = this->lock();
  const JsonFrame* frame = states_.back().context->frame.get();
  if (frame != nullptr && frame->needs_text && states_.back().ending == nullptr) {
    JsonTokenMatcher here = *this;
    here.find_ending_without_repeats();
    if (here.states_.back().ending != nullptr) return *here.states_.back().ending;
  }
  std::string text = text_;
  append_ending(states_.back(), text, nullptr);
  return text.substr(text_.size());
}

void JsonTokenMatcher::append_key_ending(const State& at, std::string& text,
                                         const JsonFrame* stop) const {
  const JsonKeys& keys = *at.context->keys;
  const std::string written(lexeme(at));
  std::string best;
  const auto consider = [&](std::string_view rest) {
    const std::string name =
        decode_json_string(written + std::string(rest.substr(0, rest.size() - 1)));
    const JsonContextPtr context = frames().begin_value_of(*at.context, name);
    if (context == nullptr) return;
    std::string whole = text + std::string(rest) + ":";
    frames().append_value_ending(*context, whole, stop);
    if (best.empty() || whole.size() < best.size()) best = std::move(whole);
  };
  for (uint32_t i = at.listed_begin; i < at.listed_end; ++i) {
    consider(keys.listed[i].spelled.substr(written.size()));
  }
  const bool is_plain = decode_json_string(written) == written;
  if (at.lexer != StringLexer::kDead && is_plain) {
    const auto name = frames().another_name(*at.context, written);
    if (name) consider(to_json_string(*name).substr(1 + written.size()));
  } else if (at.lexer != StringLexer::kDead) {
    // A character that has begun comes first.
    learnt().strings.for_each_ending(at.lexer, [&](uint32_t slot, uint32_t) {
      std::string rest;
      learnt().strings.append_ending(at.lexer, slot, rest);
      consider(rest);
      // Another one makes the name a new one.
      for (char c = 'a'; best.empty() && c <= 'z'; ++c) {
        consider(rest.substr(0, rest.size() - 1) + c + '"');
      }
    });
  }
  if (!best.empty()) text = std::move(best);
}

void JsonTokenMatcher::append_ending(const State& at, std::string& text,
                                     const JsonFrame* stop) const {
  if (at.ending != nullptr && stop == nullptr) return void(text += *at.ending);
  switch (at.phase) {
    case Phase::kColon:
      text += ':';
      [[fallthrough]];
    case Phase::kValue:
      return frames().append_value_ending(*at.context, text, stop);
    case Phase::kFirstItem:
    case Phase::kFirstKey:
      return frames().append_container_ending(*at.context, true, text, stop);
    case Phase::kAfterValue:
      return frames().append_container_ending(*at.context, false, text, stop);
    case Phase::kKey:
      return frames().append_member_ending(*at.context, text, stop);
    case Phase::kInKey:
      return append_key_ending(at, text, stop);
    case Phase::kDone:
      return;
    default:
      break;
  }
  uint32_t least = JsonCompletion::kNever;
  uint32_t best = 0;
  for_each_value_ending(at, [&](uint32_t slot, uint32_t bytes) {
    const uint32_t whole = JsonCompletion::sum(bytes, at.context->slots[slot].outer);
    if (whole >= least) return;
    least = whole;
    best = slot;
  });
  if (at.phase == Phase::kInString) learnt().strings.append_ending(at.lexer, best, text);
  if (at.phase == Phase::kInNumber) learnt().numbers.append_ending(at.lexer, best, text);
  if (at.phase == Phase::kInLiteral) {
    text += literal_text(at.literal).substr(text_.size() - at.begin);
  }
  frames().append_outer(*at.context, best, text, stop);
}

}  // namespace quire::grammar
