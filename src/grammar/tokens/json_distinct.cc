// Distinct values, for arrays without repeats.
#include <algorithm>
#include <deque>

#include "base/utf8.h"
#include "grammar/tokens/json_completion.h"

namespace quire::grammar {
namespace {

// Texts of an automaton, the shortest first; `visit` gets each until it returns false.
template <typename Visit>
void for_each_text(const Dfa& dfa, const Visit& visit) {
  constexpr size_t kMaxPlaces = 4096;
  std::deque<std::pair<int32_t, std::string>> places = {{dfa.start(), {}}};
  for (size_t count = 0; !places.empty() && count < kMaxPlaces; ++count) {
    const auto [state, text] = places.front();
    places.pop_front();
    if (dfa.accepts(state) && !visit(text)) return;
    size_t num_next = 0;
    for (int byte = 0; byte < 256 && num_next < 40; ++byte) {
      // Letters come first.
      const auto next_byte = static_cast<uint8_t>((byte + 'a') % 256);
      const int32_t next = dfa.step(state, next_byte);
      if (next == Dfa::kDead) continue;
      places.emplace_back(next, text + static_cast<char>(next_byte));
      ++num_next;
    }
  }
}

}  // namespace

std::vector<std::string> JsonCompletion::distinct_values(int number, size_t count) const {
  std::vector<std::string> values;
  const JsonGoal& from = goal(number);
  if ((from.types & kNullType) != 0) values.emplace_back("null");
  if ((from.types & kTrueType) != 0) values.emplace_back("true");
  if ((from.types & kFalseType) != 0) values.emplace_back("false");
  std::vector<std::string> seen;
  for (const std::string& value : values) seen.push_back(generated_item(value));
  const auto add = [&](const std::string& value) {
    const std::string canonical = generated_item(value);
    if (std::ranges::find(seen, canonical) == seen.end()) {
      seen.push_back(canonical);
      values.push_back(value);
    }
    return values.size() < count;
  };
  for (const NumberTarget& target : facts(number).numbers) {
    if (target.dfa) {
      for_each_text(target.dfa->dfa(), add);
    } else {
      for (size_t i = 0; add(std::to_string(i)); ++i) continue;
    }
  }
  for (const StringTarget& target : facts(number).strings) {
    if (target.dfa) {
      // An upper limit is not a part of the automaton.
      for_each_text(target.dfa->dfa(), [&](const std::string& text) {
        return num_characters(text) > target.max_length || add(to_json_string(text));
      });
      continue;
    }
    const std::string filler(target.min_length > 0 ? target.min_length - 1 : 0, 'a');
    for (char first = 'a'; target.max_length > 0 && first <= 'z'; ++first) {
      if (!add(to_json_string(filler + first))) break;
    }
    for (char first = 'a'; target.max_length > filler.size() + 1 && first <= 'z'; ++first) {
      for (char second = 'a'; second <= 'z'; ++second) {
        if (!add(to_json_string(filler + first + second))) break;
      }
    }
  }
  if (values.size() > count) values.resize(count);
  return values;
}

void JsonCompletion::find_distinct_values() {
  constexpr uint64_t kMaxDistinct = 256;
  const bool has_unique = std::ranges::any_of(facts_, [](const GoalFacts& facts) {
    return std::ranges::any_of(facts.arrays, [](const ArrayFacts& one) { return one.is_unique; });
  });
  if (!has_unique) return;
  // Others may be read together with those that forbid repeats.
  for (size_t i = 0; i < facts_.size(); ++i) {
    for (size_t j = 0; j < facts_[i].arrays.size(); ++j) {
      const ArrayAlternative& array = grammar_.goals[i].arrays[j];
      ArrayFacts& known = facts_[i].arrays[j];
      if (array.min_items < 2) continue;
      const int item = array.rest.empty() ? kNoGoal : array.rest[0];
      // Those that need certain items have the shortest of these.
      const bool are_alike = array.prefix.empty() && array.witnesses.empty();
      if (are_alike && array.min_items <= kMaxDistinct && item != kNoGoal) {
        // More than it needs, as other items may have some of them.
        known.values = distinct_values(item, static_cast<size_t>(array.min_items) * 2 + 1);
      }
      known.can_be_unique = known.values.size() >= array.min_items;
      if (!known.is_unique || known.can_be_unique) continue;
      known.is_possible = false;
      leave_out("uniqueItems with a minItems of that many");
    }
  }
}

void JsonCompletion::make_distinct(int number, size_t alternative, const NameList& items,
                                   std::vector<Part>& parts) const {
  const ArrayFacts& known = facts(number).arrays[alternative];
  size_t next = 0;
  for (Part& part : parts) {
    while (next < known.values.size() && items.contains(generated_item(known.values[next]))) {
      ++next;
    }
    if (next < known.values.size()) part.text = known.values[next++];
  }
}

}  // namespace quire::grammar
