// Makes the alternatives of a goal (schema_goals.h) from what a conjunction asks.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "grammar/regex.h"
#include "grammar/schema_goals.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr uint64_t kMaxPrefix = 20'000;
constexpr size_t kMaxPatterns = 60;
constexpr uint64_t kMaxNameLength = 1000;

template <typename T>
void add_once(std::vector<T>& list, const T& value) {
  if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

size_t index_of(const std::vector<int>& list, int value) {
  return static_cast<size_t>(std::ranges::find(list, value) - list.begin());
}

constexpr size_t kLeastAllocation = 32;  // in bytes

}  // namespace

void SchemaGoals::finish(Conjunction& all, int goal) {
  Entry& entry = entries_[static_cast<size_t>(goal)];
  if (++entry.num_alternatives > kMaxAlternatives) {
    throw Error(fmt::format(
        "{}: the combinations of anyOf, oneOf, not, if and of what enum lists here make more "
        "than {} alternatives",
        pointer_of(entry.literals), kMaxAlternatives));
  }
  JsonGoal& out = entry.goal;
  out.types |= all.types & (kNullType | kFalseType | kTrueType);
  if ((all.types & kNumberType) != 0 && !grammar_.numbers.is_empty(all.number_dfa)) {
    add_once(out.numbers, all.number_dfa);
  }
  if ((all.types & kStringType) != 0 && all.min_length <= all.max_length &&
      !grammar_.strings.is_empty(all.string_dfa)) {
    bool is_possible = true;
    const bool has_bounds = all.min_length > 0 || all.max_length != UINT64_MAX;
    if (all.string_dfa != DfaStore::kAll && has_bounds) {
      const Dfa::Lengths& lengths = grammar_.strings.lengths(all.string_dfa);
      is_possible = lengths.fewest[0] <= all.max_length &&
                    (lengths.most[0] == Dfa::kUnbounded || lengths.most[0] >= all.min_length);
    }
    if (is_possible) add_once(out.strings, {all.string_dfa, all.min_length, all.max_length});
  }
  if ((all.types & kArrayType) != 0) {
    ArrayAlternative array;
    if (make_array(all, goal, array)) {
      budget_.take(2 * sizeof(ArrayAlternative));  // as the list may have reserved
      out.arrays.push_back(std::move(array));
    }
  }
  if ((all.types & kObjectType) != 0) {
    ObjectAlternative object;
    if (make_object(all, goal, object)) {
      constexpr size_t kBytesOfOther = 144;  // an entry of a table and its list
      budget_.take(2 * sizeof(ObjectAlternative) + object.others.size() * kBytesOfOther);
      out.objects.push_back(std::move(object));
    }
  }
}

ChildGoals SchemaGoals::item_goals(const Conjunction& all, const ArrayAlternative& array,
                                   uint64_t index) {
  budget_.check_time();
  std::vector<Literal> literals;
  for (const int number : all.array_nodes) {
    const SchemaNode& from = node(number);
    if (index < from.prefix_items.size()) {
      literals.push_back(fulfils(from.prefix_items[index]));
    } else if (from.items != SchemaNode::kNone) {
      literals.push_back(fulfils(from.items));
    }
  }
  for (const auto& item : all.items_at) {
    if (item.index == index) literals.push_back(item.literal);
  }
  ChildGoals goals;
  for (size_t mask = 0; mask < size_t{1} << all.item_counts.size(); ++mask) {
    std::vector<Literal> with = literals;
    bool is_possible = true;
    for (size_t i = 0; i < all.item_counts.size(); ++i) {
      const Conjunction::ItemCount& counted = all.item_counts[i];
      const bool is_witness = (mask >> i & 1) != 0;
      if (index < counted.first) {
        is_possible &= !is_witness;
      } else if (is_witness) {
        with.push_back(counted.literal);
      } else if (array.witnesses[i].max != UINT64_MAX) {
        with.push_back(opposite(counted.literal));
      }
    }
    goals.push_back(is_possible ? goal_of(std::move(with)) : kNoGoal);
  }
  return goals;
}

bool SchemaGoals::make_array(const Conjunction& all, int goal, ArrayAlternative& out) {
  out.min_items = all.min_items;
  out.max_items = all.max_items;
  if (out.min_items > out.max_items || (all.has_repeats && all.has_no_repeats)) return false;
  if (all.has_repeats) out.repeats = ArrayAlternative::Repeats::kNeeded;
  if (all.has_no_repeats) out.repeats = ArrayAlternative::Repeats::kForbidden;
  if (all.has_repeats) out.min_items = std::max<uint64_t>(out.min_items, 2);
  if (out.min_items > out.max_items) return false;
  if (all.item_counts.size() > kMaxWitnesses) {
    throw Error(fmt::format("{}: more than {} conditions of the kind of contains on one array",
                            pointer_of(entries_[static_cast<size_t>(goal)].literals),
                            kMaxWitnesses));
  }
  uint64_t prefix = 0;
  for (const int number : all.array_nodes) {
    prefix = std::max<uint64_t>(prefix, node(number).prefix_items.size());
  }
  for (const auto& item : all.items_at) prefix = std::max(prefix, item.index + 1);
  for (const auto& counted : all.item_counts) {
    if (counted.min > counted.max || counted.min > out.max_items) return false;
    out.witnesses.push_back({counted.first, counted.min, counted.max});
    out.min_items = std::max(out.min_items, counted.min);
    prefix = std::max(prefix, counted.first);
  }
  if (prefix > kMaxPrefix) {
    throw Error(fmt::format("{}: more than {} items with schemas of their own",
                            pointer_of(entries_[static_cast<size_t>(goal)].literals), kMaxPrefix));
  }
  for (uint64_t i = 0; i < prefix; ++i) out.prefix.push_back(item_goals(all, out, i));
  out.rest = item_goals(all, out, prefix);
  // Items that must be there and that nothing fulfils.
  for (uint64_t i = 0; i < std::min(prefix + 1, out.min_items); ++i) {
    if (std::ranges::all_of(out.goals_at(i), [&](int item) { return is_empty(item); }))
      return false;
  }
  return true;
}

int SchemaGoals::with_length(int dfa, uint64_t min, uint64_t max, int goal) {
  if (min == 0 && max == UINT64_MAX) return dfa;
  if (min > kMaxNameLength || (max != UINT64_MAX && max > kMaxNameLength)) {
    throw Error(fmt::format("{}: propertyNames with lengths beyond {}",
                            pointer_of(entries_[static_cast<size_t>(goal)].literals),
                            kMaxNameLength));
  }
  const std::string pattern = max == UINT64_MAX ? fmt::format("^[^]{{{},}}$", min)
                                                : fmt::format("^[^]{{{},{}}}$", min, max);
  return grammar_.strings.both(dfa, grammar_.strings.get("/" + pattern, [&] {
    return compile_regex_dfa(pattern, RegexMatch::kAnywhere, budget_);
  }));
}

int SchemaGoals::name_language(std::vector<Literal> literals, int goal) {
  const int names = goal_of(std::move(literals));
  const int nothing = grammar_.strings.complement(DfaStore::kAll);
  if (names == kNoGoal) return nothing;
  if (is_empty(names)) return nothing;
  if (entries_[static_cast<size_t>(names)].state != Entry::State::kDone) {
    throw Error(
        fmt::format("{}/propertyNames: recursion in the schema of names, or too many of "
                    "them within each other",
                    pointer_of(entries_[static_cast<size_t>(goal)].literals)));
  }
  int language = nothing;
  for (const StringAlternative& strings : entries_[static_cast<size_t>(names)].goal.strings) {
    const int part = with_length(strings.dfa, strings.min_length, strings.max_length, goal);
    if (part == DfaStore::kAll) return DfaStore::kAll;
    language =
        language == nothing
            ? part
            : grammar_.strings.add(combine(grammar_.strings.at(language), grammar_.strings.at(part),
                                           Combine::kEither, budget_));
  }
  return language;
}

ChildGoals SchemaGoals::member_goals(const Conjunction& all, const std::string* name,
                                     uint64_t matches, const std::vector<int>& patterns,
                                     uint64_t must_match, uint64_t name_witnesses) {
  budget_.check_time();
  const auto matched = [&](int dfa) { return (matches >> index_of(patterns, dfa) & 1) != 0; };
  const auto is_additional = [&](const SchemaNode& from) {
    return (name == nullptr || from.find_property(*name) == SchemaNode::kNone) &&
           std::ranges::none_of(from.pattern_properties,
                                [&](const auto& pattern) { return matched(pattern.first); });
  };
  const size_t num_witnesses = all.witnesses.size() + all.other_names.size();
  if ((matches & must_match) != must_match) return ChildGoals(size_t{1} << num_witnesses, kNoGoal);
  std::vector<Literal> literals;
  for (const int number : all.object_nodes) {
    const SchemaNode& from = node(number);
    const int property = name == nullptr ? SchemaNode::kNone : from.find_property(*name);
    if (property != SchemaNode::kNone) literals.push_back(fulfils(property));
    for (const auto& [dfa, schema] : from.pattern_properties) {
      if (matched(dfa)) literals.push_back(fulfils(schema));
    }
    if (from.additional != SchemaNode::kNone && is_additional(from)) {
      literals.push_back(fulfils(from.additional));
    }
  }
  for (const auto& [member, literal] : all.members) {
    if (name != nullptr && member == *name) literals.push_back(literal);
  }
  ChildGoals goals;
  for (size_t mask = 0; mask < size_t{1} << num_witnesses; ++mask) {
    std::vector<Literal> with = literals;
    bool is_possible = true;
    for (size_t i = 0; i < num_witnesses; ++i) {
      if ((mask >> i & 1) == 0) continue;
      if (i >= all.witnesses.size()) {
        // The automata of these names follow one another among the patterns.
        const uint64_t bit = name_witnesses << (i - all.witnesses.size());
        is_possible &= (matches & bit) != 0;
        continue;
      }
      const Conjunction::MemberWitness& witness = all.witnesses[i];
      is_possible &= witness.pattern == DfaStore::kAll ? is_additional(node(witness.node))
                                                       : matched(witness.pattern);
      with.push_back(witness.literal);
    }
    goals.push_back(is_possible ? goal_of(std::move(with)) : kNoGoal);
  }
  return goals;
}

bool SchemaGoals::make_object(const Conjunction& all, int goal, ObjectAlternative& out) {
  out.min_properties = all.min_properties;
  out.max_properties = all.max_properties;
  if (out.min_properties > out.max_properties) return false;
  if (!make_others(all, goal, out)) return false;
  for (const ObjectAlternative::Name& name : out.names) {
    if (!name.is_required) continue;
    ++out.num_required;
    if (std::ranges::all_of(name.goals, [&](int member) { return is_empty(member); })) return false;
  }
  if (out.num_required > out.max_properties) return false;
  for (const int number : all.dependent_nodes) {
    const auto& dependent = node(number).dependent_required;
    out.dependent_required.insert(out.dependent_required.end(), dependent.begin(), dependent.end());
  }
  return true;
}

std::vector<uint64_t> SchemaGoals::sets_of_patterns(const std::vector<int>& patterns,
                                                    const std::string& pointer) {
  try {
    return matching_sets(grammar_.strings, patterns, budget_);
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with('#')) throw;
    throw Error(fmt::format("{}/patternProperties: {}", pointer, what));
  }
}

bool SchemaGoals::make_others(const Conjunction& all, int goal, ObjectAlternative& out) {
  for (const int number : all.object_nodes) {
    for (const auto& [dfa, schema] : node(number).pattern_properties) add_once(out.patterns, dfa);
  }
  for (const Conjunction::MemberWitness& witness : all.witnesses) {
    for (const auto& pattern : node(witness.node).pattern_properties) {
      add_once(out.patterns, pattern.first);
    }
  }
  uint64_t must_match = 0;
  if (!all.names.empty()) {
    const int language = name_language(all.names, goal);
    if (language != DfaStore::kAll) {
      add_once(out.patterns, language);
      must_match = uint64_t{1} << index_of(out.patterns, language);
    }
  }
  const uint64_t name_witnesses = uint64_t{1} << std::min<size_t>(out.patterns.size(), 63);
  for (const Literal literal : all.other_names) {
    int language = name_language({literal}, goal);
    // A pattern of its own, so that the bits follow one another.
    if (language == DfaStore::kAll) language = grammar_.strings.add(utf8_dfa(budget_));
    out.patterns.push_back(language);
  }
  out.num_witnesses = static_cast<int>(all.witnesses.size() + all.other_names.size());
  const std::string& pointer = pointer_of(entries_[static_cast<size_t>(goal)].literals);
  if (out.patterns.size() > kMaxPatterns) {
    throw Error(fmt::format("{}/patternProperties: more than {} patterns for one object", pointer,
                            kMaxPatterns));
  }
  if (static_cast<size_t>(out.num_witnesses) > kMaxWitnesses) {
    throw Error(fmt::format("{}: more than {} negated conditions on the members of one object",
                            pointer, kMaxWitnesses));
  }

  struct Kind {
    bool is_required = false;
    bool is_forbidden = false;
  };
  std::map<std::string_view, Kind> names;
  for (const int number : all.object_nodes) {
    for (const auto& property : node(number).properties) names[property.first];
  }
  for (const Conjunction::MemberWitness& witness : all.witnesses) {
    for (const auto& property : node(witness.node).properties) names[property.first];
  }
  for (const auto& member : all.members) names[member.first];
  for (const std::string& name : all.required) names[name].is_required = true;
  for (const std::string& name : all.forbidden) names[name].is_forbidden = true;
  for (const auto& [name, kind] : names) {
    budget_.step();
    if (kind.is_required && kind.is_forbidden) return false;
    const std::string text(name);
    uint64_t matches = 0;
    for (size_t i = 0; i < out.patterns.size(); ++i) {
      if (grammar_.strings.matches(out.patterns[i], name)) matches |= uint64_t{1} << i;
    }
    ChildGoals goals{kNoGoal};
    if (!kind.is_forbidden) {
      goals = member_goals(all, &text, matches, out.patterns, must_match, name_witnesses);
    }
    // As the list may have reserved, and what an allocation takes at least.
    budget_.take(2 * sizeof(ObjectAlternative::Name) + text.size() + kLeastAllocation +
                 goals.size() * sizeof(int));
    out.names.push_back({text, std::move(goals), kind.is_required});
  }
  for (const uint64_t matches : sets_of_patterns(out.patterns, pointer)) {
    ChildGoals goals =
        member_goals(all, nullptr, matches, out.patterns, must_match, name_witnesses);
    if (std::ranges::any_of(goals, [](int member) { return member != kNoGoal; })) {
      out.others.emplace(matches, std::move(goals));
    }
  }
  return true;
}

}  // namespace quire::grammar
