#include "grammar/tokens/json_completion.h"

#include <algorithm>
#include <map>
#include <queue>

namespace quire::grammar {
// A member that has to come, or may come to be a witness.
struct JsonCompletion::Candidate {
  std::string name;
  const ChildGoals* goals;
  bool is_needed;
};

uint32_t JsonCompletion::find_cost(int number) const {
  const JsonGoal& from = goal(number);
  const GoalFacts& known = facts(number);
  uint32_t best = kNever;
  if ((from.types & (kNullType | kTrueType)) != 0) best = 4;
  if ((from.types & kFalseType) != 0) best = std::min(best, 5U);
  for (const NumberTarget& target : known.numbers) {
    best = std::min(best, target.dfa ? target.dfa->distance(0) : 1);
  }
  for (const StringTarget& target : known.strings) {
    const uint32_t inside =
        target.dfa ? target.dfa->distance(0) : static_cast<uint32_t>(target.min_length);
    best = std::min(best, sum(inside, 2));
  }
  for (size_t i = 0; i < from.arrays.size(); ++i) {
    best = std::min(best, sum(1, array_cost(number, i, 0, {})));
  }
  for (size_t i = 0; i < from.objects.size(); ++i) {
    best = std::min(best, sum(1, object_cost(number, i, 0, {}, {})));
  }
  return best;
}

void JsonCompletion::append_value(int number, std::string& out) const {
  const JsonGoal& from = goal(number);
  const GoalFacts& known = facts(number);
  const uint32_t least = find_cost(number);
  if ((from.types & kNullType) != 0 && least == 4) return void(out += "null");
  if ((from.types & kTrueType) != 0 && least == 4) return void(out += "true");
  if ((from.types & kFalseType) != 0 && least == 5) return void(out += "false");
  for (const NumberTarget& target : known.numbers) {
    if ((target.dfa ? target.dfa->distance(0) : 1) != least) continue;
    if (!target.dfa) return void(out += '0');
    return target.dfa->append_ending(0, out);
  }
  for (const StringTarget& target : known.strings) {
    const uint32_t inside =
        target.dfa ? target.dfa->distance(0) : static_cast<uint32_t>(target.min_length);
    if (sum(inside, 2) != least) continue;
    out += '"';
    if (target.dfa) {
      target.dfa->append_ending(0, out);
    } else {
      out.append(inside, 'a');
    }
    out += '"';
    return;
  }
  std::vector<Part> parts;
  for (size_t i = 0; i < from.arrays.size(); ++i) {
    parts.clear();
    if (sum(1, array_cost(number, i, 0, {}, 0, &parts)) != least) continue;
    out += '[';
    make_distinct(number, i, {}, parts);
    return append_parts(parts, false, true, out);
  }
  for (size_t i = 0; i < from.objects.size(); ++i) {
    parts.clear();
    if (sum(1, object_cost(number, i, 0, {}, {}, 0, &parts)) != least) continue;
    out += '{';
    return append_parts(parts, true, true, out);
  }
}

void JsonCompletion::append_parts(const std::vector<Part>& parts, bool is_object, bool is_first,
                                  std::string& out) const {
  for (const Part& part : parts) {
    if (!is_first) out += ',';
    is_first = false;
    if (is_object) out += to_json_string(part.name) + ":";
    if (part.text.empty()) {
      append_value(part.goal, out);
    } else {
      out += part.text;
    }
  }
  out += is_object ? '}' : ']';
}

uint32_t JsonCompletion::array_cost(int number, size_t alternative, uint64_t count,
                                    const Counts& witnessed, uint64_t more,
                                    std::vector<Part>* parts) const {
  constexpr uint64_t kMaxItems = 4096;
  const ArrayAlternative& array = goal(number).arrays[alternative];
  const uint64_t least = std::max(array.min_items, count + more);
  if (!facts(number).arrays[alternative].is_possible || count > array.max_items ||
      least > array.max_items || least - count > kMaxItems) {
    return kNever;
  }
  if (!array.witnesses.empty()) return witnesses_cost(array, count, witnessed, least, parts);
  const ArrayFacts& known = facts(number).arrays[alternative];
  // Of distinct values the longest may be those that are left.
  uint32_t longest = 0;
  for (const std::string& value : known.values) {
    longest = std::max(longest, static_cast<uint32_t>(value.size()));
  }
  uint32_t total = 1;
  for (uint64_t i = count; i < least && total != kNever; ++i) {
    const int item = array.goals_at(i)[0];
    const uint32_t item_cost = cost(item);
    total =
        sum(total, sum(item_cost == kNever ? kNever : std::max(item_cost, longest), i > 0 ? 1 : 0));
    if (parts != nullptr) parts->push_back({{}, item});
  }
  return total;
}

// Dijkstra's algorithm over the number of items and of witnesses that are still needed.
uint32_t JsonCompletion::witnesses_cost(const ArrayAlternative& array, uint64_t count,
                                        const Counts& witnessed, uint64_t least,
                                        std::vector<Part>* parts) const {
  constexpr size_t kMaxPlaces = 4096;
  struct Place {
    uint64_t count;
    Counts witnessed;
    auto operator<=>(const Place&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Way {
    uint32_t cost = kNever;
    Place before{};
    int goal = kNoGoal;
  };
  const auto is_end = [&](const Place& place) {
    if (place.count < least) return false;
    for (size_t w = 0; w < array.witnesses.size(); ++w) {
      if (place.witnessed[w] < array.witnesses[w].min) return false;
    }
    return true;
  };
  // Beyond what is needed, numbers only count where there is a limit.
  const auto most = [&](size_t w) {
    const ArrayAlternative::Witness& witness = array.witnesses[w];
    return witness.max == UINT64_MAX ? witness.min : witness.max;
  };
  std::map<Place, Way> ways;
  using Entry = std::pair<uint32_t, Place>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const Place first{count, witnessed};
  ways[first].cost = 1;
  queue.emplace(1, first);
  while (!queue.empty() && ways.size() < kMaxPlaces) {
    const auto [so_far, place] = queue.top();
    queue.pop();
    if (so_far > ways[place].cost) continue;
    if (is_end(place)) {
      for (Place at = place; parts != nullptr && at != first; at = ways[at].before) {
        parts->insert(parts->begin(), Part{{}, ways[at].goal});
      }
      return so_far;
    }
    if (place.count >= array.max_items) continue;
    const ChildGoals& goals = array.goals_at(place.count);
    for (uint32_t mask = 0; mask < goals.size(); ++mask) {
      Place next{place.count + 1, place.witnessed};
      bool is_useful = true;
      for (size_t w = 0; w < array.witnesses.size(); ++w) {
        if ((mask >> w & 1) != 0) is_useful &= next.witnessed[w]++ < most(w);
      }
      const uint32_t longer =
          is_useful ? sum(so_far, sum(cost(goals[mask]), place.count > 0 ? 1 : 0)) : kNever;
      if (longer == kNever) continue;
      Way& way = ways[next];
      if (longer >= way.cost) continue;
      way = {longer, place, goals[mask]};
      queue.emplace(longer, next);
    }
  }
  return kNever;
}

uint32_t JsonCompletion::object_cost(int number, size_t alternative, uint64_t count,
                                     const NameList& names, const Counts& witnessed, uint64_t more,
                                     std::vector<Part>* parts) const {
  const ObjectAlternative& object = goal(number).objects[alternative];
  const ObjectFacts& known = facts(number).objects[alternative];
  if (!known.is_simple || more > 0) {
    std::vector<Part> own;
    return plan_object(object, known, count, names, witnessed, more, parts ? *parts : own);
  }
  uint32_t total = 1;
  bool is_first = count == 0;
  for (const uint32_t i : known.required) {
    const ObjectAlternative::Name& name = object.names[i];
    if (names.contains(name.name)) continue;
    const auto own = static_cast<uint32_t>(known.spelled[i].size() + (is_first ? 1 : 2));
    total = sum(total, sum(cost(name.goals[0]), own));
    if (total == kNever) return kNever;
    is_first = false;
    if (parts != nullptr) parts->push_back({name.name, name.goals[0]});
  }
  return total;
}

std::vector<JsonCompletion::Candidate> JsonCompletion::candidates(const ObjectAlternative& object,
                                                                  const ObjectFacts& facts,
                                                                  const NameList& names,
                                                                  uint32_t needed) const {
  std::vector<Candidate> all;
  NameList taken = names;
  std::vector<std::string> todo;
  for (const uint32_t i : facts.required) todo.push_back(object.names[i].name);
  const auto add_dependents = [&](std::string_view of) {
    for (const auto& [name, others] : object.dependent_required) {
      if (name == of) todo.insert(todo.end(), others.begin(), others.end());
    }
  };
  names.for_each(add_dependents);
  while (!todo.empty()) {
    const std::string name = std::move(todo.back());
    todo.pop_back();
    if (taken.contains(name)) continue;
    taken = taken.with(name);
    all.push_back({name, goals_of(object, name), true});
    add_dependents(name);
  }
  if (needed == 0) return all;
  const auto has_dependents = [&](std::string_view name) {
    return std::ranges::any_of(object.dependent_required,
                               [&](const auto& dependent) { return dependent.first == name; });
  };
  for (const ObjectAlternative::Name& name : object.names) {
    if (taken.contains(name.name) || has_dependents(name.name)) continue;
    all.push_back({name.name, &name.goals, false});
  }
  for (uint32_t mask = 1; mask < 1U << object.num_witnesses; ++mask) {
    if ((mask & needed) == 0) continue;
    const std::optional<Part> other = another_member(object, facts, taken, mask);
    if (!other) continue;
    taken = taken.with(other->name);
    all.push_back({other->name, goals_of(object, other->name), false});
  }
  return all;
}

// The cheapest way to take all that are needed, and some others, so that all witnesses are there.
bool JsonCompletion::choose(const std::vector<Candidate>& candidates, uint32_t needed,
                            std::vector<Part>& parts) const {
  constexpr uint32_t kEachMember = 4096;  // few members come before few bytes
  struct Way {
    uint64_t cost = UINT64_MAX;
    uint32_t before = 0;
    int goal = kNoGoal;
  };
  const size_t num_sets = size_t{1} << kMaxWitnesses;
  std::vector<std::vector<Way>> ways(candidates.size() + 1, std::vector<Way>(num_sets));
  ways[0][0].cost = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    for (uint32_t have = 0; have < num_sets; ++have) {
      const uint64_t so_far = ways[i][have].cost;
      if (so_far == UINT64_MAX) continue;
      if (!candidate.is_needed && so_far < ways[i + 1][have].cost) {
        ways[i + 1][have] = {so_far, have, kNoGoal};
      }
      if (candidate.goals == nullptr) continue;
      for (uint32_t mask = 0; mask < candidate.goals->size(); ++mask) {
        const int goal = (*candidate.goals)[mask];
        if (cost(goal) == kNever) continue;
        const uint64_t longer = so_far + cost(goal) + candidate.name.size() + kEachMember;
        Way& way = ways[i + 1][have | mask];
        if (longer < way.cost) way = {longer, have, goal};
      }
    }
  }
  const Way* best = nullptr;
  uint32_t at = 0;
  for (uint32_t have = 0; have < num_sets; ++have) {
    const Way& way = ways.back()[have];
    if ((have & needed) != needed || way.cost == UINT64_MAX) continue;
    if (best != nullptr && best->cost <= way.cost) continue;
    best = &way;
    at = have;
  }
  if (best == nullptr) return false;
  for (size_t i = candidates.size(); i-- > 0;) {
    const Way& way = ways[i + 1][at];
    if (way.goal != kNoGoal) parts.push_back({candidates[i].name, way.goal});
    at = way.before;
  }
  std::ranges::reverse(parts);
  return true;
}

bool JsonCompletion::fill_up(const ObjectAlternative& object, const ObjectFacts& facts,
                             NameList taken, size_t least, std::vector<Part>& parts) const {
  constexpr size_t kMaxMembers = 256;
  if (least > kMaxMembers) return false;
  for (const Part& part : parts) taken = taken.with(part.name);
  std::vector<std::pair<uint32_t, Part>> optional;
  for (size_t i = 0; i < object.names.size() && parts.size() < least; ++i) {
    const ObjectAlternative::Name& name = object.names[i];
    if (taken.contains(name.name) || cost(name.goals[0]) == kNever) continue;
    const bool has_dependents =
        std::ranges::any_of(object.dependent_required,
                            [&](const auto& dependent) { return dependent.first == name.name; });
    if (has_dependents) continue;
    optional.push_back({static_cast<uint32_t>(facts.spelled[i].size()) + cost(name.goals[0]),
                        Part{name.name, name.goals[0]}});
  }
  std::ranges::stable_sort(optional, {}, [](const auto& one) { return one.first; });
  for (size_t i = 0; i < optional.size() && parts.size() < least; ++i) {
    parts.push_back(std::move(optional[i].second));
  }
  while (parts.size() < least) {
    std::optional<Part> other = another_member(object, facts, taken, 0);
    if (!other) return false;
    taken = taken.with(other->name);
    parts.push_back(std::move(*other));
  }
  return true;
}

uint32_t JsonCompletion::plan_object(const ObjectAlternative& object, const ObjectFacts& facts,
                                     uint64_t count, const NameList& names, const Counts& witnessed,
                                     uint64_t more, std::vector<Part>& parts) const {
  uint32_t needed = 0;
  for (size_t w = 0; w < static_cast<size_t>(object.num_witnesses); ++w) {
    if (witnessed[w] == 0) needed |= 1U << w;
  }
  if (!choose(candidates(object, facts, names, needed), needed, parts)) return kNever;
  const uint64_t least = std::max(count + more, object.min_properties);
  if (count + parts.size() < least &&
      !fill_up(object, facts, names, static_cast<size_t>(least - count), parts)) {
    return kNever;
  }
  if (count + parts.size() > object.max_properties) return kNever;
  uint32_t total = 1;
  bool is_first = count == 0;
  for (const Part& part : parts) {
    const auto own = static_cast<uint32_t>(to_json_string(part.name).size() + (is_first ? 1 : 2));
    total = sum(total, sum(cost(part.goal), own));
    is_first = false;
  }
  return total;
}

std::optional<JsonCompletion::Part> JsonCompletion::another_member(
    const ObjectAlternative& object, const ObjectFacts& facts, const NameList& taken,
    uint32_t witnesses, const std::string& prefix) const {
  const auto member = [&](const std::string& name) -> std::optional<Part> {
    if (taken.contains(name) || object.find(name) != nullptr) return std::nullopt;
    const ChildGoals* goals = goals_of(object, name);
    if (goals == nullptr || cost((*goals)[witnesses]) == kNever) return std::nullopt;
    return Part{name, (*goals)[witnesses]};
  };
  if (!facts.others && !facts.any_others) return std::nullopt;
  // Where no name has such a value, none need be looked at.
  const bool has_value = std::ranges::any_of(
      object.others, [&](const auto& other) { return cost(other.second[witnesses]) != kNever; });
  if (!has_value) return std::nullopt;
  // The shortest name that begins with `stem`; nothing if none does.
  const auto finished = [&](std::string stem) -> std::optional<std::string> {
    if (!facts.others) return stem;
    const Dfa& dfa = facts.others->dfa();
    int32_t state = dfa.start();
    for (const char c : stem) state = dfa.step(state, static_cast<uint8_t>(c));
    if (state == Dfa::kDead) return std::nullopt;
    while (!dfa.accepts(state)) {
      const uint8_t byte = facts.others->next_byte(state);
      stem += static_cast<char>(byte);
      state = dfa.step(state, byte);
    }
    return stem;
  };
  // Letters first; up to two characters of a name's own, before or behind what all names have.
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyz0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ "
      "!#$%&'()*+,./:;<=>?@[]^`{|}~";
  const auto shortest = finished(prefix);
  if (!shortest) return std::nullopt;
  if (auto found = shortest->empty() ? std::nullopt : member(*shortest)) return found;
  for (const std::string& stem : {prefix, *shortest}) {
    for (size_t second = 0; second <= kLetters.size(); ++second) {
      for (const char first : kLetters) {
        std::string name = stem;
        if (second > 0) name += kLetters[second - 1];
        const auto whole = finished(name + first);
        if (!whole) continue;
        if (auto found = member(*whole)) return found;
      }
    }
    if (*shortest == prefix) break;
  }
  return std::nullopt;
}

}  // namespace quire::grammar
