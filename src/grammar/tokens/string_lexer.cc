#include "grammar/tokens/string_lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hex_digit.h"
#include "grammar/string_reader.h"

namespace quire::grammar {
namespace {

// A digit of a control character's \uXXXX.
int control_digit(int character, int place) {
  return place < 2 ? 0 : place == 2 ? character >> 4 : character & 15;
}

bool may_be_control(uint16_t code, int num_digits, int character) {
  uint16_t so_far = 0;
  for (int i = 0; i < num_digits; ++i) {
    so_far = static_cast<uint16_t>(so_far * 16 + control_digit(character, i));
  }
  return so_far == code;
}

}  // namespace

int32_t StringLexer::begin(const std::vector<StringTarget>& targets) {
  std::vector<At> at;
  for (const StringTarget& target : targets) {
    at.push_back({index_of(sources_, target), 0});
  }
  return at.empty() ? kDead : add({}, std::move(at));
}

int32_t StringLexer::add(const Place& place, std::vector<At> targets) {
  // Of an automaton's texts, those that would be too long.
  const uint64_t length = begun_length(place);
  std::erase_if(targets, [&](const At& at) {
    const StringTarget& target = source(at);
    if (!target.dfa || target.max_length == UINT64_MAX) return false;
    return length > target.max_length || num_characters(place, at) > target.max_length - length;
  });
  if (targets.empty()) return kDead;
  const auto [found, is_new] =
      numbers_.try_emplace({place, targets}, static_cast<int32_t>(states_.size()));
  if (!is_new) return found->second;
  State state;
  state.place = place;
  const bool may_end = place.mode == Mode::kText && place.more_bytes == 0;
  for (const At& at : targets) {
    state.costs.push_back(cost(place, at));
    // An automaton's texts may be few where there is a limit to their length.
    const bool is_limited = source(at).dfa && source(at).max_length != UINT64_MAX;
    state.is_endless |= !is_limited && num_texts(place, at) == UINT32_MAX;
    const StringTarget& target = source(at);
    const bool is_whole =
        target.dfa ? target.dfa->dfa().accepts(at.state) : place.length >= target.min_length;
    if (may_end && is_whole) state.results |= uint64_t{1} << target.slot;
  }
  state.targets = std::move(targets);
  // Beside the state its place in numbers_.
  num_bytes_ += sizeof(State) + 128 + state.targets.size() * (2 * sizeof(At) + sizeof(uint32_t));
  states_.push_back(std::move(state));
  return found->second;
}

int32_t StringLexer::explore(int32_t number, uint8_t byte) {
  int32_t next = kDead;
  if (byte == '"' && is_between_characters(number)) {
    next = results(number) != 0 ? kEnd : kDead;
  } else {
    // Copies: add() may move the states.
    Place place = states_[static_cast<size_t>(number)].place;
    std::vector<At> targets = states_[static_cast<size_t>(number)].targets;
    if (take(byte, place, targets) && !targets.empty()) next = add(place, std::move(targets));
  }
  State& state = states_[static_cast<size_t>(number)];
  if (state.num_few < state.few.size()) {
    state.few[state.num_few++] = {byte, next};
    return next;
  }
  if (state.all == nullptr) {
    state.all = std::make_unique<std::array<int32_t, 256>>();
    state.all->fill(kUnknown);
    for (const auto& [of, to] : state.few) (*state.all)[of] = to;
    num_bytes_ += sizeof(*state.all);
  }
  (*state.all)[byte] = next;
  return next;
}

bool StringLexer::take(uint8_t byte, Place& place, std::vector<At>& targets) const {
  switch (place.mode) {
    case Mode::kText:
      return take_text(byte, place, targets);
    case Mode::kEscape:
      return take_escape(byte, place, targets);
    case Mode::kHex:
      return take_hex(byte, place, targets);
    case Mode::kLowEscape:
      place.mode = Mode::kLowLetter;
      return byte == '\\';
    case Mode::kLowLetter:
      place.mode = Mode::kHex;
      return byte == 'u';
  }
  return false;
}

void StringLexer::begin_character(const Place& place, std::vector<At>& targets) const {
  std::erase_if(targets, [&](const At& at) { return place.length >= source(at).max_length; });
}

void StringLexer::count_character(Place& place, const std::vector<At>& targets) const {
  place.length = counted(place.length + 1, targets);
}

uint64_t StringLexer::counted(uint64_t length, const std::vector<At>& targets) const {
  // Beyond what some target asks for, one length is like another.
  uint64_t most = 0;
  for (const At& at : targets) {
    const StringTarget& target = source(at);
    most = std::max(most, target.max_length == UINT64_MAX ? target.min_length : target.max_length);
  }
  return std::min(length, most);
}

void StringLexer::advance_by(uint8_t character, std::vector<At>& targets) const {
  std::erase_if(targets, [&](At& at) {
    if (source(at).dfa) at.state = source(at).dfa->dfa().step(at.state, character);
    return at.state == Dfa::kDead;
  });
}

bool StringLexer::take_text(uint8_t byte, Place& place, std::vector<At>& targets) const {
  if (place.more_bytes > 0) {
    if (byte < place.least_next || byte > place.most_next) return false;
    --place.more_bytes;
    place.least_next = 0x80;
    place.most_next = 0xBF;
    advance_by(byte, targets);
    if (place.more_bytes == 0) count_character(place, targets);
    return true;
  }
  if (byte < 0x20) return false;
  begin_character(place, targets);
  if (byte == '\\') {
    place.mode = Mode::kEscape;
    // An automaton has to have something that is written like this.
    std::erase_if(targets,
                  [&](const At& at) { return source(at).dfa && cost(place, at) == UINT32_MAX; });
    return true;
  }
  if (byte >= 0x80) {
    if (byte < 0xC2 || byte > 0xF4) return false;
    place.more_bytes = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    // Neither longer than needed, nor surrogates, nor beyond U+10FFFF.
    if (byte == 0xE0) place.least_next = 0xA0;
    if (byte == 0xED) place.most_next = 0x9F;
    if (byte == 0xF0) place.least_next = 0x90;
    if (byte == 0xF4) place.most_next = 0x8F;
  }
  advance_by(byte, targets);
  if (byte < 0x80) count_character(place, targets);
  return true;
}

bool StringLexer::take_escape(uint8_t byte, Place& place, std::vector<At>& targets) const {
  if (byte == 'u') {
    place.mode = Mode::kHex;
    place.num_digits = 0;
    place.code = 0;
    std::erase_if(targets,
                  [&](const At& at) { return source(at).dfa && cost(place, at) == UINT32_MAX; });
    return true;
  }
  const size_t i = kEscapeNames.find(static_cast<char>(byte));
  if (i == std::string_view::npos) return false;
  place.mode = Mode::kText;
  advance_by(static_cast<uint8_t>(kEscapeMeanings[i]), targets);
  count_character(place, targets);
  return true;
}

bool StringLexer::take_hex(uint8_t byte, Place& place, std::vector<At>& targets) const {
  const int digit = hex_digit(static_cast<char>(byte));
  if (digit < 0) return false;
  place.code = static_cast<uint16_t>(place.code * 16 + digit);
  ++place.num_digits;
  if (place.num_digits == 1 && place.has_high && place.code != 0xD) return false;
  const bool is_surrogate = place.num_digits == 2 && place.code >= 0xD8 && place.code <= 0xDF;
  // A low surrogate comes after a high one and nowhere else.
  if (place.num_digits == 2 && place.has_high != (is_surrogate && place.code >= 0xDC)) return false;
  if (place.num_digits < 4) {
    std::erase_if(targets,
                  [&](const At& at) { return source(at).dfa && cost(place, at) == UINT32_MAX; });
    return true;
  }
  const uint16_t code = place.code;
  place.num_digits = 0;
  place.code = 0;
  if (code >= 0xD800 && code < 0xDC00) {
    place.has_high = true;
    place.mode = Mode::kLowEscape;
    return true;
  }
  place.has_high = false;
  place.mode = Mode::kText;
  std::erase_if(targets, [&](At& at) {
    if (!source(at).dfa) return false;
    at.state =
        code < 0x20 ? source(at).dfa->dfa().step(at.state, static_cast<uint8_t>(code)) : Dfa::kDead;
    return at.state == Dfa::kDead;
  });
  count_character(place, targets);
  return true;
}

// How many more characters an automaton's text needs, behind the one that has begun.
uint32_t StringLexer::num_characters(const Place& place, const At& at) const {
  const EscapedDfa& dfa = *source(at).dfa;
  if (place.mode == Mode::kText) return dfa.num_characters(at.state);
  std::string text;
  int32_t next = Dfa::kDead;
  cost_of_escape(place, at, &text, &next);
  return next == Dfa::kDead ? UINT32_MAX : dfa.num_characters(next);
}

// What finishes an escape of an automaton's text that has begun, and the text.
uint32_t StringLexer::cost_of_escape(const Place& place, const At& at, std::string* text,
                                     int32_t* behind) const {
  const EscapedDfa& dfa = *source(at).dfa;
  uint32_t best = UINT32_MAX;
  uint32_t best_characters = UINT32_MAX;
  std::string best_text;
  const auto consider = [&](uint8_t character, std::string escape) {
    const int32_t next = dfa.dfa().step(at.state, character);
    if (next == Dfa::kDead) return;
    // With a limit to the length, few characters come first, as in the automaton's own endings.
    const bool is_limited = source(at).max_length != UINT64_MAX;
    const uint32_t characters = is_limited ? dfa.num_characters(next) : 0;
    const uint32_t whole = static_cast<uint32_t>(escape.size()) + dfa.distance(next) + 1;
    if (std::pair(characters, whole) >= std::pair(best_characters, best)) return;
    best_characters = characters;
    best = whole;
    if (behind != nullptr) *behind = next;
    if (text == nullptr) return;
    best_text = std::move(escape);
    dfa.append_ending(next, best_text);
  };
  if (place.mode == Mode::kEscape) {
    for (size_t i = 0; i < kEscapeNames.size(); ++i) {
      consider(static_cast<uint8_t>(kEscapeMeanings[i]), std::string(1, kEscapeNames[i]));
    }
  }
  const int num_digits = place.mode == Mode::kHex ? place.num_digits : 0;
  for (int character = 0; character < 0x20 && !place.has_high; ++character) {
    if (!may_be_control(place.code, num_digits, character)) continue;
    std::string escape = fmt::format("{:04x}", character).substr(static_cast<size_t>(num_digits));
    if (place.mode == Mode::kEscape) escape.insert(0, "u");
    consider(static_cast<uint8_t>(character), std::move(escape));
  }
  if (text != nullptr) *text += best_text;
  return best;
}

uint32_t StringLexer::cost(const Place& place, const At& at) const {
  const StringTarget& target = source(at);
  if (target.dfa) {
    if (place.mode == Mode::kText) return target.dfa->distance(at.state) + 1;
    // Surrogates are for strings without an automaton.
    return place.mode == Mode::kLowEscape || place.mode == Mode::kLowLetter
               ? UINT32_MAX
               : cost_of_escape(place, at, nullptr);
  }
  // A character that has begun counts when it is whole.
  const bool has_begun = place.more_bytes > 0 || place.mode != Mode::kText;
  const uint64_t length = place.length + (has_begun ? 1 : 0);
  const uint64_t missing = target.min_length > length ? target.min_length - length : 0;
  uint32_t started = place.more_bytes;
  if (place.mode == Mode::kEscape) started = 1;
  if (place.mode == Mode::kLowEscape) started = 6;
  if (place.mode == Mode::kLowLetter) started = 5;
  if (place.mode == Mode::kHex) {
    started = 4U - place.num_digits;
    const bool is_high = !place.has_high && place.num_digits >= 2 &&
                         place.code >> (4 * (place.num_digits - 2)) >= 0xD8 &&
                         place.code >> (4 * (place.num_digits - 2)) <= 0xDB;
    if (is_high) started += 6;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(started + missing + 1, UINT32_MAX - 1));
}

void StringLexer::append_ending(int32_t state, uint32_t slot, std::string& out) const {
  const State& from = states_[static_cast<size_t>(state)];
  size_t best = from.targets.size();
  for (size_t i = 0; i < from.targets.size(); ++i) {
    if (slot_of(from.targets[i]) != slot) continue;
    if (best == from.targets.size() || from.costs[i] < from.costs[best]) best = i;
  }
  const At& at = from.targets.at(best);
  const StringTarget& target = source(at);
  const Place& place = from.place;
  if (target.dfa) {
    if (place.mode == Mode::kText) {
      target.dfa->append_ending(at.state, out);
    } else {
      cost_of_escape(place, at, &out);
    }
    out += '"';
    return;
  }
  const size_t size = out.size() + from.costs[best];
  for (int i = 0; i < place.more_bytes; ++i) {
    out += static_cast<char>(i == 0 ? place.least_next : 0x80);
  }
  if (place.mode == Mode::kEscape) out += 'n';
  if (place.mode == Mode::kLowEscape) out += "\\udc00";
  if (place.mode == Mode::kLowLetter) out += "udc00";
  if (place.mode == Mode::kHex) {
    const std::string_view low = "dc00";
    for (size_t i = place.num_digits; i < 4; ++i) out += place.has_high ? low[i] : '0';
    if (size - out.size() >= 7 && from.costs[best] >= 4U - place.num_digits + 7) {
      const uint16_t code = static_cast<uint16_t>(place.code << (4 * (4 - place.num_digits)));
      if (!place.has_high && code >= 0xD800 && code < 0xDC00) out += "\\udc00";
    }
  }
  while (out.size() + 1 < size) out += 'a';
  out += '"';
}

uint32_t StringLexer::num_texts(const Place& place, const At& at) const {
  const StringTarget& target = source(at);
  if (target.dfa) return target.dfa->num_texts(at.state);
  const bool is_full =
      place.mode == Mode::kText && place.more_bytes == 0 && place.length >= target.max_length;
  return is_full ? 1 : UINT32_MAX;
}

uint32_t StringLexer::num_texts(int32_t state, uint32_t slot) const {
  const State& from = states_[static_cast<size_t>(state)];
  uint64_t count = 0;
  for (const At& at : from.targets) {
    if (slot_of(at) == slot) count += num_texts(from.place, at);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(count, UINT32_MAX));
}

std::optional<std::vector<StringLexer::Room>> StringLexer::rooms(int32_t state) const {
  if (!is_between_characters(state)) return std::nullopt;
  const State& from = states_[static_cast<size_t>(state)];
  const uint64_t length = from.place.length;
  std::vector<Room> rooms;
  for (const At& at : from.targets) {
    const StringTarget& target = source(at);
    if (target.dfa) return std::nullopt;
    const bool is_limited = target.max_length != UINT64_MAX;
    rooms.push_back({target.slot, target.min_length - std::min(length, target.min_length),
                     is_limited ? target.max_length - length : UINT64_MAX});
  }
  return rooms;
}

int32_t StringLexer::behind_characters(int32_t state, uint64_t num_characters) {
  Place place = states_[static_cast<size_t>(state)].place;
  std::vector<At> targets = states_[static_cast<size_t>(state)].targets;
  std::erase_if(targets, [&](const At& at) {
    const uint64_t most = source(at).max_length;
    return most != UINT64_MAX && num_characters > most - place.length;
  });
  place.length = counted(place.length + num_characters, targets);
  return add(place, std::move(targets));
}

bool StringLexer::has_automata(int32_t state) const {
  return std::ranges::any_of(states_[static_cast<size_t>(state)].targets,
                             [&](const At& at) { return source(at).dfa != nullptr; });
}

bool StringLexer::is_limited(int32_t state) const {
  return std::ranges::any_of(states_[static_cast<size_t>(state)].targets, [&](const At& at) {
    return source(at).max_length != UINT64_MAX || source(at).min_length > 0;
  });
}

uint32_t StringLexer::free_source(uint32_t source) {
  free_sources_.resize(std::max(free_sources_.size(), sources_.size()), UINT32_MAX);
  if (free_sources_[source] == UINT32_MAX) {
    const StringTarget& target = sources_[source];
    free_sources_[source] = index_of(sources_, StringTarget{target.slot, target.dfa});
  }
  return free_sources_[source];
}

int32_t StringLexer::without_limits(int32_t state) {
  Place place = states_[static_cast<size_t>(state)].place;
  place.length = 0;
  std::vector<At> targets = states_[static_cast<size_t>(state)].targets;
  for (At& at : targets) at.source = free_source(at.source);
  std::ranges::sort(targets);
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return add(place, std::move(targets));
}

int32_t StringLexer::with_limits(int32_t state, int32_t free, uint64_t num_characters) {
  const State& from = states_[static_cast<size_t>(state)];
  const State& to = states_[static_cast<size_t>(free)];
  const uint64_t length = begun_length(from.place) + num_characters;
  std::vector<At> targets;
  bool takes_all = true;
  for (const At& of : from.targets) {
    const StringTarget& target = source(of);
    const uint32_t as_free = free_source(of.source);
    const auto at = std::ranges::find(to.targets, as_free, &At::source);
    if (at == to.targets.end()) continue;
    takes_all &= length <= target.max_length && target.min_length == 0;
    if (length <= target.max_length) targets.push_back({of.source, at->state});
  }
  if (takes_all) return to.results != 0 ? free : kDead;
  Place place;
  place.length = counted(length, targets);
  const int32_t limited = add(place, std::move(targets));  // moves the states
  return limited != kDead && results(limited) != 0 ? limited : kDead;
}

uint32_t StringLexer::most_ending_bytes(int32_t state) const {
  const State& from = states_[static_cast<size_t>(state)];
  uint32_t most = 0;
  for (size_t i = 0; i < from.targets.size(); ++i) {
    const StringTarget& target = source(from.targets[i]);
    most = std::max(most, target.dfa ? target.dfa->most_distance() : from.costs[i]);
  }
  return most + 12;  // an escape that has begun, and the quote
}

}  // namespace quire::grammar
