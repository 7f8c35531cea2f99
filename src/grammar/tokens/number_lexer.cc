#include "grammar/tokens/number_lexer.h"

#include <algorithm>

namespace quire::grammar {

int32_t NumberLexer::begin(const std::vector<NumberTarget>& targets) {
  std::vector<At> at;
  for (const NumberTarget& target : targets) {
    at.push_back({index_of(sources_, target), 0});
  }
  return at.empty() ? kDead : add({}, std::move(at));
}

bool NumberLexer::is_whole(Phase phase) {
  return phase == Phase::kZero || phase == Phase::kInteger || phase == Phase::kFraction ||
         phase == Phase::kExponentDigits;
}

int32_t NumberLexer::add(const Place& place, std::vector<At> targets) {
  const auto [found, is_new] =
      numbers_.try_emplace({place, targets}, static_cast<int32_t>(states_.size()));
  if (!is_new) return found->second;
  State state;
  state.place = place;
  state.next.fill(kUnknown);
  for (const At& at : targets) {
    const NumberTarget& target = sources_[at.source];
    const bool is_fulfilled =
        is_whole(place.phase) && (!target.dfa || target.dfa->dfa().accepts(at.state));
    if (is_fulfilled) state.results |= uint64_t{1} << target.slot;
  }
  state.targets = std::move(targets);
  // Beside the state its place in numbers_.
  num_bytes_ += sizeof(State) + 128 + 2 * state.targets.size() * sizeof(At);
  states_.push_back(std::move(state));
  return found->second;
}

int32_t NumberLexer::step(int32_t state, uint8_t byte) {
  if (byte >= 128) return kDead;
  const int32_t next = states_[static_cast<size_t>(state)].next[byte];
  return next != kUnknown ? next : explore(state, byte);
}

bool NumberLexer::take(Place& place, uint8_t byte) {
  using P = Phase;
  const P before = place.phase;
  ++place.length;
  if (byte >= '0' && byte <= '9') {
    if ((byte != '0' || place.num_digits > 0) && before < P::kExponent) ++place.num_digits;
    if (before == P::kStart || before == P::kMinus) {
      place.phase = byte == '0' ? P::kZero : P::kInteger;
    } else if (before == P::kPoint || before == P::kFraction) {
      place.phase = P::kFraction;
    } else if (before != P::kInteger) {
      if (before == P::kZero) return false;
      place.phase = P::kExponentDigits;
      return ++place.num_exponent_digits <= kMaxExponentDigits;
    }
    return true;
  }
  if (byte == '-' && before == P::kStart) {
    place.phase = P::kMinus;
  } else if (byte == '.' && (before == P::kZero || before == P::kInteger)) {
    place.phase = P::kPoint;
  } else if ((byte == 'e' || byte == 'E') && is_whole(before) && before != P::kExponentDigits &&
             place.length <= kMaxBytesBeforeExponent) {
    place.phase = P::kExponent;
  } else if ((byte == '-' || byte == '+') && before == P::kExponent) {
    place.phase = P::kExponentSign;
  } else {
    return false;
  }
  return true;
}

// Whether a fraction can be other than zero.
bool NumberLexer::needs_fraction(const Dfa& dfa, int32_t behind_point) {
  // Zeros may lead on for a while, but not through one state twice.
  int32_t state = behind_point;
  for (int32_t i = 0; i <= dfa.num_states() && state != Dfa::kDead; ++i) {
    for (uint8_t digit = '1'; digit <= '9'; ++digit) {
      if (dfa.step(state, digit) != Dfa::kDead) return true;
    }
    state = dfa.step(state, '0');
  }
  return false;
}

int32_t NumberLexer::explore(int32_t number, uint8_t byte) {
  const Place before = states_[static_cast<size_t>(number)].place;
  Place place = before;
  std::vector<At> targets = states_[static_cast<size_t>(number)].targets;
  int32_t next = kDead;
  if (take(place, byte)) {
    std::erase_if(targets, [&](At& at) {
      const EscapedDfaPtr& dfa = sources_[at.source].dfa;
      const At from = at;
      if (dfa) at.state = dfa->dfa().step(at.state, byte);
      if (dfa && byte == '.' && !needs_fraction(dfa->dfa(), at.state)) return true;
      if (at.state == Dfa::kDead || place.length + cost(place, at) > kMaxBytes) return true;
      return dfa && !is_exact(before, from, place, at);
    });
    if (!targets.empty()) next = add(place, std::move(targets));
  }
  states_[static_cast<size_t>(number)].next[byte] = next;
  return next;
}

bool NumberLexer::goes_on(int32_t state) {
  constexpr std::string_view kBytes = "0123456789.-+eE";
  return std::ranges::any_of(kBytes,
                             [&](char c) { return step(state, static_cast<uint8_t>(c)) != kDead; });
}

uint32_t NumberLexer::cost(const Place& place, const At& at) const {
  const EscapedDfaPtr& dfa = sources_[at.source].dfa;
  if (dfa) return dfa->distance(at.state);
  return is_whole(place.phase) ? 0 : 1;
}

uint32_t NumberLexer::fewest_digits(const Place& place, const At& at) const {
  const bool is_before_point = place.phase < Phase::kPoint;
  const uint32_t bytes = place.num_digits + cost(place, at);
  // One of the bytes is the point, if this is not an integer.
  return bytes - (is_before_point && bytes > 0 ? 1 : 0);
}

bool NumberLexer::leads_to_integer(const NumberDigits& digits, const Place& place, const At& at) {
  if (place.phase >= Phase::kPoint) return false;
  const uint32_t more = digits.to_integer(at.state);
  return more != NumberDigits::kNever && place.length + more <= kMaxBytes;
}

bool NumberLexer::is_exact(const Place& before, const At& from, const Place& after, const At& to) {
  const uint32_t fewest = fewest_digits(after, to);
  if (fewest <= NumberDigits::kExact) return true;
  const NumberDigits& digits = digits_of(to.source);
  if (digits.is_listed() || leads_to_integer(digits, after, to)) return true;
  // The shortest way is left: it may be the only one, or have been promised.
  return fewest <= fewest_digits(before, from);
}

const NumberDigits& NumberLexer::digits_of(uint32_t source) {
  if (digits_.size() <= source) digits_.resize(sources_.size());
  std::optional<NumberDigits>& digits = digits_[source];
  if (!digits) {
    digits.emplace(sources_[source].dfa->dfa());
    num_bytes_ += digits->bytes();
  }
  return *digits;
}

void NumberLexer::append_ending(int32_t number, uint32_t slot, std::string& out) const {
  const State& state = states_[static_cast<size_t>(number)];
  const At* best = nullptr;
  for (const At& at : state.targets) {
    if (sources_[at.source].slot != slot) continue;
    if (best == nullptr || cost(state.place, at) < cost(state.place, *best)) best = &at;
  }
  if (best == nullptr) return;  // the slot has no target here
  const EscapedDfaPtr& dfa = sources_[best->source].dfa;
  if (dfa) {
    dfa->append_ending(best->state, out);
  } else if (!is_whole(state.place.phase)) {
    out += '0';
  }
}

}  // namespace quire::grammar
