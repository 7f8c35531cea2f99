#include "grammar/json_matcher.h"

#include <algorithm>
#include <functional>

#include "grammar/decimal.h"
#include "grammar/json_tree.h"

namespace quire::grammar {
namespace {

bool is_space(uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}
bool is_digit(uint8_t byte) {
  return byte >= '0' && byte <= '9';
}

}  // namespace

JsonMatcher::JsonMatcher(const JsonGrammar& grammar) : grammar_(&grammar), goals_{grammar.root} {}

const ArrayAlternative& JsonMatcher::array_of(const Frame& frame, const Configuration& of) const {
  return goal(frame.goals[static_cast<size_t>(of.slot)]).arrays[of.alternative];
}

const ObjectAlternative& JsonMatcher::object_of(const Frame& frame, const Configuration& of) const {
  return goal(frame.goals[static_cast<size_t>(of.slot)]).objects[of.alternative];
}

bool JsonMatcher::advance(uint8_t byte) {
  if (num_comparing_ > 0) text_ += static_cast<char>(byte);
  take(byte);
  return phase_ != Phase::kFailed;
}

void JsonMatcher::take(uint8_t byte) {
  switch (phase_) {
    case Phase::kInString:
      return take_string(byte);
    case Phase::kInKey:
      return take_key(byte);
    case Phase::kInNumber:
      return take_number(byte);
    case Phase::kInLiteral:
      return take_literal(byte);
    case Phase::kFailed:
      return;
    default:
      break;
  }
  if (is_space(byte)) return;
  switch (phase_) {
    case Phase::kValue:
      return begin_value(byte);
    case Phase::kFirstItem:
      if (byte == ']') return end_container();
      begin_item();
      if (phase_ == Phase::kValue) begin_value(byte);
      return;
    case Phase::kFirstKey:
      if (byte == '}') return end_container();
      [[fallthrough]];
    case Phase::kKey:
      phase_ = byte == '"' ? Phase::kInKey : Phase::kFailed;
      string_.begin();
      key_.clear();
      return;
    case Phase::kColon:
      phase_ = byte == ':' ? Phase::kValue : Phase::kFailed;
      return;
    case Phase::kAfterValue:
      return take_after_value(byte);
    default:
      phase_ = Phase::kFailed;
  }
}

void JsonMatcher::begin_value(uint8_t byte) {
  if (!frames_.empty() && frames_.back().compares_items) {
    frames_.back().item_begin = text_.size() - 1;
  }
  if (byte == '{' || byte == '[') return begin_container(byte == '{');
  if (byte == '"') return begin_string();
  if (byte == '-' || is_digit(byte)) return begin_number(byte);
  begin_literal(byte);
}

void JsonMatcher::begin_container(bool is_object) {
  if (frames_.size() >= kMaxDepth) {
    phase_ = Phase::kFailed;
    return;
  }
  Frame frame;
  frame.is_object = is_object;
  frame.goals = std::move(goals_);
  goals_.clear();
  for (size_t slot = 0; slot < frame.goals.size(); ++slot) {
    const JsonGoal& of = goal(frame.goals[slot]);
    const size_t count = is_object ? of.objects.size() : of.arrays.size();
    for (size_t i = 0; i < count; ++i) {
      Configuration configuration;
      configuration.slot = static_cast<int>(slot);
      configuration.alternative = static_cast<uint32_t>(i);
      if (is_object) {
        configuration.missing = of.objects[i].num_required;
      } else {
        frame.compares_items |= of.arrays[i].repeats != ArrayAlternative::Repeats::kAllowed;
      }
      frame.configurations.push_back(configuration);
    }
  }
  phase_ = frame.configurations.empty() ? Phase::kFailed
           : is_object                  ? Phase::kFirstKey
                                        : Phase::kFirstItem;
  if (frame.compares_items && ++num_comparing_ == 1) text_.clear();
  frames_.push_back(std::move(frame));
}

void JsonMatcher::begin_string() {
  string_states_.clear();
  length_ = 0;
  string_.begin();
  for (size_t slot = 0; slot < goals_.size(); ++slot) {
    for (const StringAlternative& alternative : goal(goals_[slot]).strings) {
      const int32_t start =
          alternative.dfa == DfaStore::kAll ? 0 : grammar_->strings.at(alternative.dfa).start();
      string_states_.push_back({static_cast<int>(slot), &alternative, start});
    }
  }
  phase_ = string_states_.empty() ? Phase::kFailed : Phase::kInString;
}

void JsonMatcher::take_string(uint8_t byte) {
  decoded_.clear();
  const StringReader::Result result = string_.take(byte, decoded_);
  if (result == StringReader::Result::kBad) {
    phase_ = Phase::kFailed;
    return;
  }
  if (result == StringReader::Result::kEnd) return end_string();
  if (decoded_.empty()) return;
  ++length_;
  std::erase_if(string_states_, [&](StringState& at) {
    if (length_ > at.alternative->max_length) return true;
    if (at.alternative->dfa == DfaStore::kAll) return false;
    const Dfa& dfa = grammar_->strings.at(at.alternative->dfa);
    for (const char c : decoded_) at.state = dfa.step(at.state, static_cast<uint8_t>(c));
    return at.state == Dfa::kDead;
  });
  if (string_states_.empty()) phase_ = Phase::kFailed;
}

void JsonMatcher::end_string() {
  std::vector<bool> results(goals_.size());
  for (const StringState& at : string_states_) {
    if (length_ < at.alternative->min_length) continue;
    if (at.alternative->dfa == DfaStore::kAll ||
        grammar_->strings.at(at.alternative->dfa).accepts(at.state)) {
      results[static_cast<size_t>(at.slot)] = true;
    }
  }
  end_value(results);
}

void JsonMatcher::begin_number(uint8_t byte) {
  const bool is_wanted =
      std::ranges::any_of(goals_, [&](int number) { return !goal(number).numbers.empty(); });
  number_ = static_cast<char>(byte);
  number_phase_ = byte == '-'   ? NumberPhase::kMinus
                  : byte == '0' ? NumberPhase::kZero
                                : NumberPhase::kInteger;
  phase_ = is_wanted ? Phase::kInNumber : Phase::kFailed;
}

bool JsonMatcher::number_can_end() const {
  return number_phase_ == NumberPhase::kZero || number_phase_ == NumberPhase::kInteger ||
         number_phase_ == NumberPhase::kFraction || number_phase_ == NumberPhase::kExponentDigits;
}

std::vector<bool> JsonMatcher::number_results() const {
  std::vector<bool> results(goals_.size());
  const std::optional<Decimal> number = Decimal::parse(number_);
  if (!number) return results;  // too large or small to compare
  const std::string plain = number->plain();
  for (size_t slot = 0; slot < goals_.size(); ++slot) {
    results[slot] = std::ranges::any_of(goal(goals_[slot]).numbers, [&](int dfa) {
      return dfa == DfaStore::kAll || grammar_->numbers.at(dfa).matches(plain);
    });
  }
  return results;
}

void JsonMatcher::take_number(uint8_t byte) {
  using P = NumberPhase;
  const P before = number_phase_;
  const bool has_exponent = byte == 'e' || byte == 'E';
  std::optional<P> next;
  if (is_digit(byte)) {
    if (before == P::kMinus) next = byte == '0' ? P::kZero : P::kInteger;
    if (before == P::kInteger) next = P::kInteger;
    if (before == P::kPoint || before == P::kFraction) next = P::kFraction;
    if (before == P::kExponent || before == P::kExponentSign || before == P::kExponentDigits) {
      next = P::kExponentDigits;
    }
  } else if (byte == '.' && (before == P::kZero || before == P::kInteger)) {
    next = P::kPoint;
  } else if (has_exponent &&
             (before == P::kZero || before == P::kInteger || before == P::kFraction)) {
    next = P::kExponent;
  } else if ((byte == '+' || byte == '-') && before == P::kExponent) {
    next = P::kExponentSign;
  }
  if (next) {
    number_phase_ = *next;
    number_ += static_cast<char>(byte);
    if (number_.size() > kMaxNumberBytes) phase_ = Phase::kFailed;
    return;
  }
  const bool goes_on = byte == '.' || byte == '+' || byte == '-' || has_exponent || is_digit(byte);
  if (goes_on || !number_can_end()) {
    phase_ = Phase::kFailed;
    return;
  }
  if (num_comparing_ > 0) text_.pop_back();  // what follows is no part of the item
  end_value(number_results());
  if (num_comparing_ > 0) text_ += static_cast<char>(byte);
  take(byte);
}

void JsonMatcher::begin_literal(uint8_t byte) {
  literal_ = byte == 'n' ? "null" : byte == 't' ? "true" : byte == 'f' ? "false" : "";
  literal_at_ = 1;
  phase_ = literal_.empty() ? Phase::kFailed : Phase::kInLiteral;
}

void JsonMatcher::take_literal(uint8_t byte) {
  if (static_cast<uint8_t>(literal_[literal_at_]) != byte) {
    phase_ = Phase::kFailed;
    return;
  }
  if (++literal_at_ < literal_.size()) return;
  const uint8_t type = literal_[0] == 'n' ? kNullType : literal_[0] == 't' ? kTrueType : kFalseType;
  std::vector<bool> results(goals_.size());
  for (size_t slot = 0; slot < goals_.size(); ++slot) {
    results[slot] = (goal(goals_[slot]).types & type) != 0;
  }
  end_value(results);
}

void JsonMatcher::take_key(uint8_t byte) {
  const StringReader::Result result = string_.take(byte, key_);
  if (result == StringReader::Result::kBad) phase_ = Phase::kFailed;
  if (result == StringReader::Result::kEnd) end_key();
}

int JsonMatcher::slot_of(int goal_number) {
  const auto found = std::ranges::find(goals_, goal_number);
  if (found != goals_.end()) return static_cast<int>(found - goals_.begin());
  goals_.push_back(goal_number);
  return static_cast<int>(goals_.size()) - 1;
}

void JsonMatcher::add_children(const Configuration& from, const ChildGoals& goals,
                               const Frame& frame, std::vector<Configuration>& out) {
  for (uint32_t mask = 0; mask < goals.size(); ++mask) {
    if (goals[mask] == kNoGoal) continue;
    bool is_useful = true;
    for (size_t i = 0; i < kMaxWitnesses; ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (frame.is_object) {
        is_useful &= from.witnessed[i] == 0;
        continue;
      }
      const ArrayAlternative::Witness& witness = array_of(frame, from).witnesses[i];
      // Beyond what is needed, witnesses only count where there is a limit.
      const uint64_t most = witness.max == UINT64_MAX ? witness.min : witness.max;
      is_useful &= from.witnessed[i] < most;
    }
    if (!is_useful) continue;
    out.push_back(from);
    out.back().child_slot = slot_of(goals[mask]);
    out.back().child_witness = mask;
  }
}

void JsonMatcher::end_key() {
  Frame& frame = frames_.back();
  goals_.clear();
  std::vector<Configuration> next;
  if (frame.keys.insert(key_).second) {
    for (Configuration& configuration : frame.configurations) {
      const ObjectAlternative& object = object_of(frame, configuration);
      if (frame.count >= object.max_properties) continue;
      const ChildGoals* goals = object.goals_of(key_, grammar_->strings);
      if (goals == nullptr) continue;
      const ObjectAlternative::Name* name = object.find(key_);
      if (name != nullptr && name->is_required) --configuration.missing;
      add_children(configuration, *goals, frame, next);
    }
  }
  frame.configurations = std::move(next);
  phase_ = frame.configurations.empty() ? Phase::kFailed : Phase::kColon;
}

void JsonMatcher::begin_item() {
  Frame& frame = frames_.back();
  goals_.clear();
  std::vector<Configuration> next;
  for (const Configuration& configuration : frame.configurations) {
    const ArrayAlternative& array = array_of(frame, configuration);
    if (frame.count >= array.max_items) continue;
    add_children(configuration, array.goals_at(frame.count), frame, next);
  }
  frame.configurations = std::move(next);
  phase_ = frame.configurations.empty() ? Phase::kFailed : Phase::kValue;
}

void JsonMatcher::take_after_value(uint8_t byte) {
  const bool is_object = frames_.back().is_object;
  if (static_cast<char>(byte) == (is_object ? '}' : ']')) return end_container();
  if (byte != ',') {
    phase_ = Phase::kFailed;
  } else if (is_object) {
    phase_ = Phase::kKey;
  } else {
    begin_item();
  }
}

bool JsonMatcher::array_holds(const Frame& frame, const Configuration& of) const {
  const ArrayAlternative& array = array_of(frame, of);
  if (frame.count < array.min_items || frame.count > array.max_items) return false;
  if (array.repeats == ArrayAlternative::Repeats::kForbidden && frame.has_repeats) return false;
  if (array.repeats == ArrayAlternative::Repeats::kNeeded && !frame.has_repeats) return false;
  for (size_t i = 0; i < array.witnesses.size(); ++i) {
    if (of.witnessed[i] < array.witnesses[i].min || of.witnessed[i] > array.witnesses[i].max) {
      return false;
    }
  }
  return true;
}

bool JsonMatcher::object_holds(const Frame& frame, const Configuration& of) const {
  const ObjectAlternative& object = object_of(frame, of);
  if (of.missing > 0) return false;
  if (frame.count < object.min_properties || frame.count > object.max_properties) return false;
  for (int i = 0; i < object.num_witnesses; ++i) {
    if (of.witnessed[static_cast<size_t>(i)] == 0) return false;
  }
  return std::ranges::all_of(object.dependent_required, [&](const auto& dependent) {
    return !frame.keys.contains(dependent.first) ||
           std::ranges::all_of(dependent.second,
                               [&](const std::string& name) { return frame.keys.contains(name); });
  });
}

void JsonMatcher::end_container() {
  const Frame frame = std::move(frames_.back());
  frames_.pop_back();
  if (frame.compares_items) --num_comparing_;
  std::vector<bool> results(frame.goals.size());
  for (const Configuration& configuration : frame.configurations) {
    const auto slot = static_cast<size_t>(configuration.slot);
    if (results[slot]) continue;
    results[slot] =
        frame.is_object ? object_holds(frame, configuration) : array_holds(frame, configuration);
  }
  end_value(results);
}

bool JsonMatcher::is_as_good(const Frame& frame, const Configuration& a,
                             const Configuration& b) const {
  if (a.slot != b.slot || a.alternative != b.alternative || a.missing != b.missing) return false;
  for (size_t i = 0; i < kMaxWitnesses; ++i) {
    // A goal without a witness contains the one with it, where nothing limits their number.
    const bool may_be_more = frame.is_object || i >= array_of(frame, a).witnesses.size() ||
                             array_of(frame, a).witnesses[i].max == UINT64_MAX;
    if (may_be_more ? a.witnessed[i] < b.witnessed[i] : a.witnessed[i] != b.witnessed[i]) {
      return false;
    }
  }
  return true;
}

// An item that is a witness need not count as one: without this there would be as many
// configurations as ways to count them.
void JsonMatcher::keep_the_best(Frame& frame) const {
  if (frame.configurations.size() < 2) return;
  std::ranges::sort(frame.configurations, std::greater());
  // Of one alternative, those that come first have the higher counts.
  size_t kept = 0;
  size_t begin = 0;
  for (const Configuration& next : frame.configurations) {
    if (kept > 0 && (frame.configurations[begin].slot != next.slot ||
                     frame.configurations[begin].alternative != next.alternative)) {
      begin = kept;
    }
    bool is_needed = true;
    for (size_t i = begin; i < kept && is_needed; ++i) {
      is_needed = !is_as_good(frame, frame.configurations[i], next);
    }
    if (is_needed) frame.configurations[kept++] = next;
  }
  frame.configurations.resize(kept);
}

void JsonMatcher::end_item(Frame& frame) {
  std::string item = canonical_json(std::string_view(text_).substr(frame.item_begin));
  if (!frame.items.insert(std::move(item)).second) frame.has_repeats = true;
  if (!frame.has_repeats) return;
  std::erase_if(frame.configurations, [&](const Configuration& configuration) {
    return array_of(frame, configuration).repeats == ArrayAlternative::Repeats::kForbidden;
  });
}

void JsonMatcher::end_value(const std::vector<bool>& results) {
  if (frames_.empty()) {
    accepted_ = results[0];
    phase_ = accepted_ ? Phase::kDone : Phase::kFailed;
    return;
  }
  Frame& frame = frames_.back();
  ++frame.count;
  std::erase_if(frame.configurations, [&](Configuration& configuration) {
    if (!results[static_cast<size_t>(configuration.child_slot)]) return true;
    for (size_t i = 0; i < kMaxWitnesses; ++i) {
      configuration.witnessed[i] += configuration.child_witness >> i & 1;
    }
    configuration.child_slot = -1;
    configuration.child_witness = 0;
    return false;
  });
  if (frame.compares_items) end_item(frame);
  keep_the_best(frame);
  phase_ = frame.configurations.empty() ? Phase::kFailed : Phase::kAfterValue;
}

bool JsonMatcher::can_end() const {
  if (phase_ == Phase::kDone) return accepted_;
  return phase_ == Phase::kInNumber && frames_.empty() && number_can_end() && number_results()[0];
}

}  // namespace quire::grammar
