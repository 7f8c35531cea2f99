#include "grammar/schema_goals.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr int kMaxExpansionDepth = 150;  // of goals that are expanded within each other
constexpr int kMaxSearchDepth = 1000;    // of choices within each other
constexpr size_t kMaxGoals = 200'000;
constexpr size_t kBytesOfEdit = 64;  // of an option, as what it holds is allocated
// Of a goal beside its entry and its literals: its place among the numbers, what it is made of,
// what allocations lose to their sizes. Measured: 400 to 500 bytes.
constexpr size_t kBytesBesideEntry = 512;

template <typename T>
void keep_larger(T& value, T other) {
  value = std::max(value, other);
}
template <typename T>
void keep_smaller(T& value, T other) {
  value = std::min(value, other);
}

size_t bytes_of_names(const Conjunction& all) {
  size_t bytes = (all.required.size() + all.forbidden.size()) * sizeof(std::string) +
                 all.members.size() * sizeof(all.members.front());
  constexpr size_t kMostInPlace = 15;
  const auto add = [&](const std::string& name) {
    if (name.size() > kMostInPlace) bytes += name.size() + 1;
  };
  for (const std::string& name : all.required) add(name);
  for (const std::string& name : all.forbidden) add(name);
  for (const auto& member : all.members) add(member.first);
  return bytes;
}

}  // namespace

const std::string& SchemaGoals::pointer_of(const std::vector<Literal>& literals) const {
  return literals.empty() ? node(Schema::kTrue).pointer : node(node_of(literals.back())).pointer;
}

int SchemaGoals::goal_of(std::vector<Literal> literals) {
  std::ranges::sort(literals);
  std::vector<Literal> kept;
  for (const Literal literal : literals) {
    if (literal == fulfils(Schema::kFalse) || literal == fails(Schema::kTrue)) return kNoGoal;
    if (literal == fulfils(Schema::kTrue) || literal == fails(Schema::kFalse)) continue;
    if (!kept.empty() && kept.back() == literal) continue;
    if (!kept.empty() && kept.back() == opposite(literal)) return kNoGoal;
    kept.push_back(literal);
  }
  const auto [found, is_new] = numbers_.try_emplace(kept, static_cast<int>(entries_.size()));
  if (is_new) {
    if (entries_.size() >= kMaxGoals) {
      throw Error(fmt::format("{}: combining schemas here takes more than {} combinations",
                              pointer_of(kept), kMaxGoals));
    }
    budget_.take(sizeof(Entry) + kept.size() * 2 * sizeof(Literal) + kBytesBesideEntry);
    entries_.emplace_back().literals = std::move(kept);
  }
  return found->second;
}

void SchemaGoals::expand(int goal) {
  Entry& entry = entries_[static_cast<size_t>(goal)];
  if (entry.state != Entry::State::kNew) return;
  entry.state = Entry::State::kOpen;
  ++depth_;
  budget_.enter(pointer_of(entry.literals));
  Search search;
  search.todo.assign(entry.literals.rbegin(), entry.literals.rend());
  run(std::move(search), goal);
  --depth_;
  entry.state = Entry::State::kDone;
}

bool SchemaGoals::is_empty(int goal) {
  if (goal == kNoGoal) return true;
  const Entry& entry = entries_[static_cast<size_t>(goal)];
  if (entry.state == Entry::State::kNew && depth_ < kMaxExpansionDepth) expand(goal);
  return entry.state == Entry::State::kDone && entry.goal.is_empty();
}

uint8_t SchemaGoals::types_of(int goal) {
  if (is_empty(goal)) return 0;
  const Entry& entry = entries_[static_cast<size_t>(goal)];
  if (entry.state != Entry::State::kDone) return kAllTypes;
  uint8_t types = entry.goal.types;
  if (!entry.goal.numbers.empty()) types |= kNumberType;
  if (!entry.goal.strings.empty()) types |= kStringType;
  if (!entry.goal.arrays.empty()) types |= kArrayType;
  if (!entry.goal.objects.empty()) types |= kObjectType;
  return types;
}

void SchemaGoals::run(Search search, int goal) {
  budget_.step();
  if (++search_depth_ > kMaxSearchDepth) {
    throw Error(
        fmt::format("{}: more than {} choices (anyOf, oneOf, not, if) that depend on each other",
                    pointer_of(entries_[static_cast<size_t>(goal)].literals), kMaxSearchDepth));
  }
  search_all(std::move(search), goal);
  --search_depth_;
}

void SchemaGoals::search_all(Search search, int goal) {
  ScratchMemory memory(budget_);
  size_t counted = 0;
  while (true) {
    budget_.step();
    if (!take_all(search)) return;
    const size_t of_lists =
        (search.all.done.size() + search.all.object_nodes.size() + search.all.array_nodes.size()) *
            sizeof(Literal) +
        search.all.witnesses.size() * sizeof(Conjunction::MemberWitness) +
        search.all.item_counts.size() * sizeof(Conjunction::ItemCount) +
        search.choices.size() * sizeof(Choice) + bytes_of_names(search.all);
    const size_t bytes = sizeof(Search) + of_lists + of_lists / 2;  // lists have room to grow
    memory.take(std::max(bytes, counted) - counted);
    counted = std::max(bytes, counted);
    if (search.choices.empty()) return finish(search.all, goal);
    const Choice choice = search.choices.back();
    search.choices.pop_back();
    ScratchMemory of_options(budget_);
    std::vector<Option> found = options_by_value(choice, search, of_options);
    if (found.empty()) found = options(choice, search.all, of_options);
    if (found.empty()) return;
    of_options.take(found.size() * (2 * sizeof(Option) + kBytesOfEdit));
    for (size_t i = 0; i + 1 < found.size(); ++i) {
      Search next = search;
      if (take_option(next, std::move(found[i]))) run(std::move(next), goal);
    }
    if (!take_option(search, std::move(found.back()))) return;
  }
}

bool SchemaGoals::take_option(Search& search, Option option) {
  if (option.edit) option.edit(search.all);
  search.todo = std::move(option.literals);
  search.choices.insert(search.choices.end(), option.choices.begin(), option.choices.end());
  return search.all.types != 0;
}

bool SchemaGoals::take_all(Search& search) {
  while (!search.todo.empty()) {
    budget_.step();
    const Literal literal = search.todo.back();
    search.todo.pop_back();
    if (!take(search, literal)) return false;
  }
  // Looked for while there are choices: else finish() finds it. Of many conditions on one member,
  // such as "if" it is a certain value, few go together.
  return search.choices.empty() || has_members(search.all);
}

std::optional<std::set<std::string_view>> SchemaGoals::names_to_look_at(const Conjunction& all) {
  const auto news = [](const auto& list, size_t seen) { return std::span(list).subspan(seen); };
  std::set<std::string_view> required;
  for (const std::string& name : all.required) {
    budget_.step();
    required.insert(name);
  }
  for (const std::string& name : all.forbidden) {
    budget_.step();
    if (required.contains(name)) return std::nullopt;
  }
  std::set<std::string_view> names;
  for (const std::string& name : news(all.required, all.seen.required)) names.insert(name);
  for (const auto& [name, literal] : news(all.members, all.seen.members)) {
    budget_.step();
    if (required.contains(name)) names.insert(name);
  }
  for (const int number : news(all.object_nodes, all.seen.object_nodes)) {
    const SchemaNode& from = node(number);
    if (from.additional != SchemaNode::kNone && from.pattern_properties.empty()) return required;
    for (const std::string_view name : required) {
      budget_.step();
      if (from.find_property(name) != SchemaNode::kNone) names.insert(name);
    }
  }
  return names;
}

bool SchemaGoals::has_members(Conjunction& all) {
  if (all.types != kObjectType) return true;
  const Conjunction::Seen now{all.object_nodes.size(), all.members.size(), all.required.size(),
                              all.forbidden.size()};
  if (now == all.seen) return true;
  constexpr size_t kNameBytes = 64;  // in a set
  ScratchMemory memory(budget_);
  memory.take(2 * kNameBytes * all.required.size());
  const std::optional<std::set<std::string_view>> names = names_to_look_at(all);
  if (!names) return false;
  for (const std::string_view name : *names) {
    std::vector<Literal> literals;
    for (const int number : all.object_nodes) {
      budget_.step();
      const SchemaNode& from = node(number);
      const int property = from.find_property(name);
      if (property != SchemaNode::kNone) {
        literals.push_back(fulfils(property));
      } else if (from.additional != SchemaNode::kNone && from.pattern_properties.empty()) {
        literals.push_back(fulfils(from.additional));
      }
    }
    for (const auto& [member, literal] : all.members) {
      budget_.step();
      if (member == name) literals.push_back(literal);
    }
    if (literals.size() > 1 && is_empty(goal_of(std::move(literals)))) return false;
  }
  all.seen = now;
  return true;
}

bool SchemaGoals::take(Search& search, Literal literal) {
  auto& done = search.all.done;
  if (std::ranges::binary_search(done, literal)) return true;
  if (std::ranges::binary_search(done, opposite(literal))) return false;
  done.insert(std::ranges::lower_bound(done, literal), literal);
  const int number = node_of(literal);
  if (number == Schema::kTrue || number == Schema::kFalse) {
    return (number == Schema::kTrue) != is_negative(literal);
  }
  if (!is_negative(literal)) return take_node(search, number);
  search.choices.push_back({Choice::Kind::kNot, number});
  return true;
}

bool SchemaGoals::take_node(Search& search, int number) {
  const SchemaNode& from = node(number);
  Conjunction& all = search.all;
  all.types &= from.types;
  if (from.has_values) {
    uint8_t types = from.values.types;
    if (from.values.strings != SchemaNode::kNothing) types |= kStringType;
    if (from.values.numbers != SchemaNode::kNothing) types |= kNumberType;
    if (!from.values.nodes.empty()) {
      types |= kArrayType | kObjectType;
      search.choices.push_back({Choice::Kind::kAnyOf, number, 1});
    }
    all.types &= types;
    if ((types & kStringType) != 0) {
      all.string_dfa = grammar_.strings.both(all.string_dfa, from.values.strings);
    }
    if ((types & kNumberType) != 0) {
      all.number_dfa = grammar_.numbers.both(all.number_dfa, from.values.numbers);
    }
  }
  if (all.types == 0) return false;
  if ((all.types & kNumberType) != 0) {
    for (const int dfa : from.number_dfas) {
      all.number_dfa = grammar_.numbers.both(all.number_dfa, dfa);
    }
  }
  if ((all.types & kStringType) != 0) {
    for (const int dfa : from.string_dfas) {
      all.string_dfa = grammar_.strings.both(all.string_dfa, dfa);
    }
  }
  keep_larger(all.min_length, from.min_length);
  keep_smaller(all.max_length, from.max_length);
  keep_larger(all.min_items, from.min_items);
  keep_smaller(all.max_items, from.max_items);
  all.has_no_repeats |= from.unique_items;
  if (from.has_array_keywords()) all.array_nodes.push_back(number);
  if (from.contains != SchemaNode::kNone) {
    all.item_counts.push_back({fulfils(from.contains), 0, from.min_contains, from.max_contains});
  }
  if (from.has_object_keywords()) all.object_nodes.push_back(number);
  all.required.insert(all.required.end(), from.required.begin(), from.required.end());
  keep_larger(all.min_properties, from.min_properties);
  keep_smaller(all.max_properties, from.max_properties);
  if (!from.dependent_required.empty()) all.dependent_nodes.push_back(number);
  if (from.property_names != SchemaNode::kNone) all.names.push_back(fulfils(from.property_names));

  for (const int other : from.all_of) search.todo.push_back(fulfils(other));
  if (from.not_node != SchemaNode::kNone) search.todo.push_back(fails(from.not_node));
  if (!from.any_of.empty()) search.choices.push_back({Choice::Kind::kAnyOf, number});
  if (!from.one_of.empty()) search.choices.push_back({Choice::Kind::kOneOf, number});
  if (from.then_node != SchemaNode::kNone || from.else_node != SchemaNode::kNone) {
    search.choices.push_back({Choice::Kind::kIf, number});
  }
  for (size_t i = 0; i < from.dependent_schemas.size(); ++i) {
    search.choices.push_back({Choice::Kind::kDependent, number, i});
  }
  return true;
}

std::vector<int> SchemaGoals::reachable() {
  std::vector<int> order;
  std::vector<bool> seen(entries_.size());
  const auto visit = [&](int goal) {
    if (goal == kNoGoal) return;
    if (seen.size() < entries_.size()) seen.resize(entries_.size());
    if (seen[static_cast<size_t>(goal)]) return;
    seen[static_cast<size_t>(goal)] = true;
    order.push_back(goal);
  };
  const auto visit_all = [&](const ChildGoals& goals) {
    for (const int goal : goals) visit(goal);
  };
  visit(grammar_.root);
  for (size_t i = 0; i < order.size(); ++i) {
    budget_.step();
    expand(order[i]);
    const JsonGoal& goal = entries_[static_cast<size_t>(order[i])].goal;
    for (const ArrayAlternative& array : goal.arrays) {
      for (const ChildGoals& goals : array.prefix) visit_all(goals);
      visit_all(array.rest);
    }
    for (const ObjectAlternative& object : goal.objects) {
      for (const ObjectAlternative::Name& name : object.names) visit_all(name.goals);
      for (const auto& [matches, goals] : object.others) visit_all(goals);
    }
  }
  return order;
}

void SchemaGoals::build() {
  grammar_.root = goal_of({fulfils(schema_.root)});
  std::vector<bool> is_productive;
  if (grammar_.root != kNoGoal) {
    const std::vector<int> order = reachable();
    remove_unproductive(order, is_productive);
  }
  if (grammar_.root == kNoGoal || !is_productive[static_cast<size_t>(grammar_.root)]) {
    throw Error(fmt::format("{}: no value fulfils this schema",
                            grammar_.root == kNoGoal ? "#" : why_empty(grammar_.root)));
  }
  // Numbers of goals that are left out stay as empty goals: nothing leads to them.
  grammar_.goals.resize(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i < is_productive.size() && is_productive[i]) {
      grammar_.goals[i] = std::move(entries_[i].goal);
    }
  }
}

}  // namespace quire::grammar
