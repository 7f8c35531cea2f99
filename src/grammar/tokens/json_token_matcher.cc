#include "grammar/tokens/json_token_matcher.h"

#include <algorithm>

#include "grammar/string_reader.h"

namespace quire::grammar {
namespace {

// The slot of names that are not listed and may be anything.
constexpr uint32_t kAnyName = JsonFrames::kMaxSlots - 1;

uint64_t bits_below(uint32_t count) {
  return count >= 64 ? UINT64_MAX : (uint64_t{1} << count) - 1;
}

bool is_white_space(uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

}  // namespace

JsonTokenMatcher::JsonTokenMatcher(const JsonLanguage& language)
    : language_(&language), learnt_(language.share_learnt()) {
  State first;
  first.context = frames().root();
  states_.push_back(std::move(first));
}

std::unique_ptr<ByteMatcher> JsonTokenMatcher::clone() const {
  return std::make_unique<JsonTokenMatcher>(*this);
}

bool JsonTokenMatcher::push(uint8_t byte) {
  const auto lock = this->lock();
  return advance(byte);
}

bool JsonTokenMatcher::advance(uint8_t byte) {
  if (!advance_unchecked(byte)) return false;
  if (avoids_repeats() || follows_ending()) return true;
  pop(1);
  return false;
}

bool JsonTokenMatcher::advance_unchecked(uint8_t byte) {
  ++bytes_tried_;
  State next = states_.back();
  next.ending = nullptr;
  text_ += static_cast<char>(byte);
  if (!take(states_.back(), byte, next)) {
    text_.pop_back();
    return false;
  }
  states_.push_back(std::move(next));
  return true;
}

void JsonTokenMatcher::pop(size_t count) {
  states_.resize(states_.size() - count);
  text_.resize(text_.size() - count);
}

void JsonTokenMatcher::commit() {
  states_.erase(states_.begin(), states_.end() - 1);
  memo_.clear();
  new_names_.clear();
}

bool JsonTokenMatcher::take(const State& from, uint8_t byte, State& to) {
  switch (from.phase) {
    case Phase::kInString:
      return take_string(from, byte, to);
    case Phase::kInKey:
      return take_key(from, byte, to);
    case Phase::kInNumber:
      return take_number(from, byte, to);
    case Phase::kInLiteral:
      return take_literal(from, byte, to);
    case Phase::kDone:
      return false;
    default:
      break;
  }
  if (is_white_space(byte)) {
    return from.context->frame != nullptr && take_white_space(from, byte, to);
  }
  to.white_space = 0;
  switch (from.phase) {
    case Phase::kValue:
      return begin_value(from, byte, to);
    case Phase::kFirstItem: {
      if (byte == ']') return end_container(from, to);
      to.context = remember(from.context, 'i', 0,
                            [&] { return frames().begin_item(*from.context, text_.size() - 1); });
      return to.context != nullptr && begin_value(State(to), byte, to);
    }
    case Phase::kFirstKey:
      if (byte == '}') return end_container(from, to);
      return byte == '"' && begin_key(from, to);
    case Phase::kKey:
      return byte == '"' && begin_key(from, to);
    case Phase::kColon:
      to.phase = Phase::kValue;
      return byte == ':';
    case Phase::kAfterValue:
      return take_after_value(from, byte, to);
    default:
      return false;
  }
}

// By default one space, or a line break and indentation: what people and models write, and no more,
// as a model that has nothing to say may go on with white space for ever.
bool JsonTokenMatcher::take_white_space(const State& from, uint8_t byte, State& to) const {
  const WhiteSpace& allowed = language_->options().white_space;
  if (from.white_space >= allowed.most_bytes) return false;
  if (allowed.is_compact) {
    const bool is_behind_separator = from.phase == Phase::kValue || from.phase == Phase::kKey;
    to.white_space = 1;
    return byte == ' ' && is_behind_separator;
  }
  const bool breaks_line = byte == '\n' || byte == '\r';
  if (from.white_space == 0) {
    to.white_space = 1;
    to.is_indented = breaks_line;
    return true;
  }
  const bool follows_return =
      byte == '\n' && from.white_space == 1 && text_[text_.size() - 2] == '\r';
  if (!from.is_indented || (breaks_line && !follows_return)) return false;
  ++to.white_space;
  return true;
}

bool JsonTokenMatcher::begin_value(const State& from, uint8_t byte, State& to) {
  if (byte == '{' || byte == '[') return begin_container(from, byte == '{', to);
  const JsonContext& context = *from.context;
  to.begin = static_cast<uint32_t>(byte == '"' ? text_.size() : text_.size() - 1);
  if (byte == '"') {
    std::vector<StringTarget> targets;
    for (size_t slot = 0; slot < context.slots.size(); ++slot) {
      for (StringTarget target : language_->completion().facts(context.slots[slot].goal).strings) {
        target.slot = static_cast<uint32_t>(slot);
        targets.push_back(std::move(target));
      }
    }
    to.phase = Phase::kInString;
    to.lexer = learnt().strings.begin(targets);
    return to.lexer != StringLexer::kDead;
  }
  if (byte == '-' || (byte >= '0' && byte <= '9')) {
    std::vector<NumberTarget> targets;
    for (size_t slot = 0; slot < context.slots.size(); ++slot) {
      for (NumberTarget target : language_->completion().facts(context.slots[slot].goal).numbers) {
        target.slot = static_cast<uint32_t>(slot);
        targets.push_back(std::move(target));
      }
    }
    to.phase = Phase::kInNumber;
    to.lexer = learnt().numbers.begin(targets);
    if (to.lexer != NumberLexer::kDead) to.lexer = learnt().numbers.step(to.lexer, byte);
    return to.lexer != NumberLexer::kDead;
  }
  to.phase = Phase::kInLiteral;
  to.literal = byte;
  return (byte == 'n' || byte == 't' || byte == 'f') && literal_results(to) != 0;
}

bool JsonTokenMatcher::all_differ(const State& at) {
  const JsonFrame* frame = at.context->frame.get();
  if (frame == nullptr || !frame->needs_text) return true;
  const uint64_t all = bits_below(frame->num_unique);
  return frame->num_unique <= kMostUnique && (at.differs & all) == all;
}

std::string_view JsonTokenMatcher::literal_text(uint8_t first) {
  return first == 'n' ? "null" : first == 't' ? "true" : "false";
}

uint64_t JsonTokenMatcher::literal_results(const State& at) const {
  const uint8_t type = at.literal == 'n' ? kNullType : at.literal == 't' ? kTrueType : kFalseType;
  uint64_t results = 0;
  for (size_t slot = 0; slot < at.context->slots.size(); ++slot) {
    const int goal = at.context->slots[slot].goal;
    if ((language_->grammar().goals[static_cast<size_t>(goal)].types & type) != 0) {
      results |= uint64_t{1} << slot;
    }
  }
  return results;
}

bool JsonTokenMatcher::begin_container(const State& from, bool is_object, State& to) {
  to.context = remember(from.context, is_object ? '{' : '[', 0,
                        [&] { return frames().begin_container(from.context, is_object); });
  to.phase = is_object ? Phase::kFirstKey : Phase::kFirstItem;
  if (to.context == nullptr) return false;
  const JsonFrame& frame = *to.context->frame;
  if (frame.is_unique) to.differs &= bits_below(frame.num_unique - 1);
  return true;
}

bool JsonTokenMatcher::take_string(const State& from, uint8_t byte, State& to) {
  to.lexer = learnt().strings.step(from.lexer, byte);
  if (to.lexer == StringLexer::kEnd) {
    to.differs |= makes_new(from);
    return end_value(from, learnt().strings.results(from.lexer), to);
  }
  return to.lexer != StringLexer::kDead;
}

bool JsonTokenMatcher::take_number(const State& from, uint8_t byte, State& to) {
  if (NumberLexer::may_go_on(byte)) {
    to.lexer = learnt().numbers.step(from.lexer, byte);
    return to.lexer != NumberLexer::kDead;
  }
  const uint64_t results = learnt().numbers.results(from.lexer);
  State behind = from;
  behind.ending = nullptr;
  if (results == 0 || from.context->frame == nullptr) return false;
  text_.pop_back();  // the number ends before it
  const bool has_ended = end_value(from, results, behind);
  text_ += static_cast<char>(byte);
  return has_ended && take(behind, byte, to = behind);
}

bool JsonTokenMatcher::take_literal(const State& from, uint8_t byte, State& to) {
  const std::string_view text = literal_text(from.literal);
  const size_t at = text_.size() - 1 - from.begin;
  if (static_cast<uint8_t>(text[at]) != byte) return false;
  return at + 1 < text.size() || end_value(from, literal_results(from), to);
}

bool JsonTokenMatcher::begin_key(const State& from, State& to) {
  to.context = remember(from.context, 'k', 0, [&] {
    NewNames names;
    JsonContextPtr inside = frames().begin_name(*from.context, names.rests_behind);
    if (inside != nullptr) new_names_.emplace(inside, std::move(names));
    return inside;
  });
  if (to.context == nullptr) return false;
  const JsonKeys& keys = *to.context->keys;
  to.phase = Phase::kInKey;
  to.begin = static_cast<uint32_t>(text_.size());
  to.listed_begin = 0;
  to.listed_end = static_cast<uint32_t>(keys.listed.size());
  const std::vector<StringTarget> any = {{kAnyName}};
  to.lexer = learnt().strings.begin(keys.any ? any : keys.others);
  if (to.lexer != StringLexer::kDead && !can_be_new(to)) to.lexer = StringLexer::kDead;
  return to.lexer != StringLexer::kDead || to.listed_begin < to.listed_end;
}

void JsonTokenMatcher::narrow(const State& from, uint8_t byte, State& to) const {
  const auto& listed = from.context->keys->listed;
  const size_t at = text_.size() - 1 - from.begin;
  const auto next = [&](const JsonKeys::Listed& one) {
    return at < one.spelled.size() ? static_cast<uint8_t>(one.spelled[at]) : -1;
  };
  const auto begin = listed.begin() + from.listed_begin;
  const auto end = listed.begin() + from.listed_end;
  const auto first = std::ranges::lower_bound(begin, end, static_cast<int>(byte), {}, next);
  const auto last = std::ranges::upper_bound(first, end, static_cast<int>(byte), {}, next);
  to.listed_begin = static_cast<uint32_t>(first - listed.begin());
  to.listed_end = static_cast<uint32_t>(last - listed.begin());
}

bool JsonTokenMatcher::can_be_new(const State& at) const {
  const JsonKeys& keys = *at.context->keys;
  if (keys.any) return true;
  const StringLexer& strings = learnt().strings;
  if (strings.is_endless(at.lexer)) return true;
  // Names that are used, and those that are listed, are no new ones.
  const std::string text = decode_json_string(lexeme(at), true);
  bool can_be = false;
  strings.for_each_ending(at.lexer, [&](uint32_t slot, uint32_t) {
    const Dfa& names = keys.others[slot].dfa->dfa();
    uint64_t num_old = 0;
    for_each_begun(keys.old, text, [&](std::string_view name) { num_old += names.matches(name); });
    can_be |= strings.num_texts(at.lexer, slot) > num_old;
  });
  return can_be;
}

bool JsonTokenMatcher::take_key(const State& from, uint8_t byte, State& to) {
  narrow(from, byte, to);
  if (from.lexer != StringLexer::kDead) {
    to.lexer = learnt().strings.step(from.lexer, byte);
    if (to.lexer >= 0 && !can_be_new(to)) to.lexer = StringLexer::kDead;
  }
  const bool is_listed = to.listed_begin < to.listed_end;
  const bool ends_listed =
      is_listed && byte == '"' &&
      from.context->keys->listed[to.listed_begin].spelled.size() == text_.size() - from.begin;
  if (to.lexer == StringLexer::kEnd || ends_listed) return end_key(from, to);
  return to.lexer != StringLexer::kDead || is_listed;
}

bool JsonTokenMatcher::end_key(const State& from, State& to) {
  const std::string_view spelled = lexeme(from).substr(0, text_.size() - 1 - from.begin);
  to.context = frames().begin_value_of(*from.context, decode_json_string(spelled),
                                       new_names_[from.context].rests_behind);
  to.phase = Phase::kColon;
  to.differs |= makes_new(from);
  return to.context != nullptr;
}

bool JsonTokenMatcher::take_after_value(const State& from, uint8_t byte, State& to) {
  const bool is_object = from.context->frame->is_object;
  if (static_cast<char>(byte) == (is_object ? '}' : ']')) return end_container(from, to);
  if (byte != ',') return false;
  to.context = remember(from.context, ',', 0, [&] {
    return is_object ? frames().next_member(*from.context)
                     : frames().begin_item(*from.context, text_.size());
  });
  to.phase = is_object ? Phase::kKey : Phase::kValue;
  // Another item begins.
  if (from.context->frame->is_unique) to.differs &= bits_below(from.context->frame->num_unique - 1);
  return to.context != nullptr;
}

bool JsonTokenMatcher::end_value(const State& from, uint64_t results, State& to) {
  const JsonFrame* frame = from.context->frame.get();
  const bool assumes_new = assumes_new_ && frame != nullptr && frame->is_unique;
  if (assumes_new) to.num_assumed = static_cast<uint8_t>(std::min(from.num_assumed + 1, 2));
  to.context = remember(from.context, 'v', results, [&] {
    return frames().end_value(*from.context, results, text_, assumes_new);
  });
  to.white_space = 0;
  if (to.context == nullptr) return false;
  to.phase = to.context->frame == nullptr ? Phase::kDone : Phase::kAfterValue;
  return true;
}

bool JsonTokenMatcher::end_container(const State& from, State& to) {
  const uint64_t results = frames().container_results(*from.context);
  if (results == 0) return false;
  State outside = from;
  outside.context = from.context->frame->opened_in;
  return end_value(outside, results, to);
}

std::optional<std::string> JsonTokenMatcher::next_bytes() const {
  const auto lock = this->lock();
  return next_bytes_at(states_.back());
}

std::optional<std::string> JsonTokenMatcher::next_bytes_at(const State& at) const {
  constexpr std::string_view kWhiteSpace = " \t\n\r";
  constexpr std::string_view kValues = "{[\"-0123456789tfn";
  std::string bytes;
  switch (at.phase) {
    case Phase::kInString:
      return std::nullopt;
    case Phase::kInKey: {
      if (at.lexer != StringLexer::kDead) return std::nullopt;
      const size_t written = text_.size() - at.begin;
      for (uint32_t i = at.listed_begin; i < at.listed_end; ++i) {
        const char next = at.context->keys->listed[i].spelled[written];
        if (bytes.empty() || bytes.back() != next) bytes += next;
      }
      return bytes;
    }
    case Phase::kInNumber:
      bytes = "0123456789.-+eE,]}";
      break;
    case Phase::kInLiteral:
      return std::string(1, literal_text(at.literal)[text_.size() - at.begin]);
    case Phase::kValue:
      bytes = kValues;
      break;
    case Phase::kFirstItem:
      bytes = std::string(kValues) + "]";
      break;
    case Phase::kFirstKey:
      bytes = "\"}";
      break;
    case Phase::kKey:
      bytes = "\"";
      break;
    case Phase::kColon:
      bytes = ":";
      break;
    case Phase::kAfterValue:
      bytes = ",]}";
      break;
    case Phase::kDone:
      return bytes;
  }
  return bytes.append(kWhiteSpace);
}

bool JsonTokenMatcher::can_end() const {
  const auto lock = this->lock();
  return ends_here(states_.back());
}

bool JsonTokenMatcher::ends_here(const State& at) const {
  if (at.phase == Phase::kDone) return true;
  return at.phase == Phase::kInNumber && at.context->frame == nullptr &&
         learnt().numbers.results(at.lexer) != 0;
}

bool JsonTokenMatcher::must_end() const {
  const auto lock = this->lock();
  const State& at = states_.back();
  if (at.phase == Phase::kDone) return true;
  return ends_here(at) && !learnt().numbers.goes_on(at.lexer);
}

}  // namespace quire::grammar
