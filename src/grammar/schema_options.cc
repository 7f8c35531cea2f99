// What a choice of schema_goals.h can be: anyOf, oneOf, if, dependentSchemas, and the ways in which
// a node is not fulfilled.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "grammar/schema_goals.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

void require_name(Conjunction& all, const std::string& name) {
  all.types &= kObjectType;
  all.required.push_back(name);
}

}  // namespace

std::vector<SchemaGoals::Option> SchemaGoals::options(const Choice& choice, const Conjunction& all,
                                                      ScratchMemory& memory) {
  const SchemaNode& from = node(choice.node);
  std::vector<Option> out;
  switch (choice.kind) {
    case Choice::Kind::kAnyOf:
      if (choice.index == 0) {
        for (const int option : from.any_of) out.push_back({{fulfils(option)}});
        break;
      }
      // The values of "enum": scalars, and each array and object.
      for (const int value : from.values.nodes) {
        if ((node(value).types & all.types) != 0) out.push_back({{fulfils(value)}});
      }
      out.push_back({{}, [](Conjunction& rest) {
                       rest.types &= static_cast<uint8_t>(~(kArrayType | kObjectType));
                     }});
      break;
    case Choice::Kind::kOneOf:
      return options_of_one(from, memory);
    case Choice::Kind::kIf: {
      Option is_true{{fulfils(from.if_node)}};
      Option is_false{{fails(from.if_node)}};
      if (from.then_node != SchemaNode::kNone) is_true.literals.push_back(fulfils(from.then_node));
      if (from.else_node != SchemaNode::kNone) is_false.literals.push_back(fulfils(from.else_node));
      out.push_back(std::move(is_true));
      out.push_back(std::move(is_false));
      break;
    }
    case Choice::Kind::kDependent: {
      const auto& [name, schema] = from.dependent_schemas[choice.index];
      const std::string* trigger = &name;
      out.push_back({{}, [trigger](Conjunction& rest) { rest.forbidden.push_back(*trigger); }});
      if ((all.types & kObjectType) != 0) {
        out.push_back(
            {{fulfils(schema)}, [trigger](Conjunction& rest) { require_name(rest, *trigger); }});
      }
      break;
    }
    case Choice::Kind::kNot:
      return options_of_not(choice.node, all.types);
    case Choice::Kind::kNotOfTypes: {
      const auto types = static_cast<uint8_t>(choice.index);
      if ((all.types & ~types) != 0) {
        out.push_back(
            {{}, [types](Conjunction& rest) { rest.types &= static_cast<uint8_t>(~types); }});
      }
      if ((all.types & types) != 0) {
        out.push_back({{fails(choice.node)}, [types](Conjunction& rest) { rest.types &= types; }});
      }
      break;
    }
  }
  return out;
}

std::optional<SchemaGoals::ValueTest> SchemaGoals::value_test(int number) const {
  const SchemaNode& test = node(number);
  if (test.properties.size() != 1) return std::nullopt;
  const auto& [name, value] = test.properties.front();
  const std::optional<std::string>& scalar = node(value).values.only_scalar;
  const bool names_one =
      test.required.empty() || (test.required.size() == 1 && test.required.front() == name);
  if (!scalar || !names_one) return std::nullopt;
  // Whether they ask for nothing else.
  SchemaNode plain_test;
  plain_test.pointer = test.pointer;
  plain_test.types = test.types;
  plain_test.properties = test.properties;
  plain_test.required = test.required;
  SchemaNode plain_value;
  plain_value.pointer = node(value).pointer;
  plain_value.has_values = true;
  plain_value.values = node(value).values;
  plain_value.types = node(value).types;
  const bool is_plain = test == plain_test && node(value) == plain_value;
  const bool is_one =
      (node(value).types & (scalar->front() == '"' ? kStringType : kNumberType)) != 0;
  if (!is_plain || !is_one) return std::nullopt;
  if (test.types != kAllTypes && test.types != kObjectType) return std::nullopt;
  return ValueTest{&name, value, !test.required.empty(), test.types == kObjectType};
}

std::vector<SchemaGoals::Option> SchemaGoals::options_by_value(const Choice& first, Search& search,
                                                               ScratchMemory& memory) {
  constexpr size_t kMany = 3;  // else the usual options are about as many
  std::vector<Option> out;
  if (first.kind != Choice::Kind::kIf) return out;
  const std::optional<ValueTest> first_test = value_test(node(first.node).if_node);
  if (!first_test) return out;
  const std::string& name = *first_test->name;
  struct Condition {
    int node;
    ValueTest test;
  };
  std::vector<Condition> conditions = {{first.node, *first_test}};
  std::vector<Choice> others;
  for (const Choice& choice : search.choices) {
    budget_.step();
    std::optional<ValueTest> test;
    if (choice.kind == Choice::Kind::kIf) test = value_test(node(choice.node).if_node);
    if (test && *test->name == name) {
      conditions.push_back({choice.node, *test});
    } else {
      others.push_back(choice);
    }
  }
  if (conditions.size() < kMany) return out;
  search.choices = std::move(others);
  const auto value_of = [&](const ValueTest& test) -> const std::string& {
    return *node(test.value).values.only_scalar;
  };
  std::map<std::string_view, int> values;  // and a node of each
  for (const Condition& condition : conditions) {
    values.emplace(value_of(condition.test), condition.test.value);
  }
  if (values.size() > kMaxAlternatives) {
    throw Error(fmt::format("{}: the conditions on one member here tell more than {} values apart",
                            node(first.node).pointer, kMaxAlternatives));
  }

  // `is_met`: which conditions are, of what the option leads to.
  const auto add = [&](auto edit, const auto& is_met) {
    Option option{{}, std::move(edit)};
    memory.take(sizeof(Option));
    for (const Condition& condition : conditions) {
      budget_.step();
      const SchemaNode& from = node(condition.node);
      const int next = is_met(condition.test) ? from.then_node : from.else_node;
      if (next == SchemaNode::kNone || next == Schema::kTrue) continue;
      memory.take(2 * sizeof(Literal));  // as the list may have reserved
      option.literals.push_back(fulfils(next));
    }
    out.push_back(std::move(option));
  };
  add([](Conjunction& rest) { rest.types &= static_cast<uint8_t>(~kObjectType); },
      [](const ValueTest& test) { return !test.is_object; });
  add(
      [&name](Conjunction& rest) {
        rest.types &= kObjectType;
        rest.forbidden.push_back(name);
      },
      [](const ValueTest& test) { return !test.is_needed; });
  for (const auto& [value, number] : values) {
    add(
        [&name, literal = fulfils(number)](Conjunction& rest) {
          require_name(rest, name);
          rest.members.emplace_back(name, literal);
        },
        [&, value = value](const ValueTest& test) { return value_of(test) == value; });
  }
  add(
      [&name, values](Conjunction& rest) {
        require_name(rest, name);
        for (const auto& value : values) rest.members.emplace_back(name, fails(value.second));
      },
      [](const ValueTest&) { return false; });
  return out;
}

SchemaGoals::Tags SchemaGoals::find_tags(int number) {
  constexpr size_t kPartBytes = 64;  // in a set and a list
  ScratchMemory memory(budget_);
  Tags tags;
  uint8_t types = kAllTypes;
  std::vector<int> parts = {number};
  std::set<int> seen = {number};
  for (size_t i = 0; i < parts.size(); ++i) {  // what it asks in any case
    const SchemaNode& from = node(parts[i]);
    types &= from.types;
    for (const int part : from.all_of) {
      budget_.step();
      if (!seen.insert(part).second) continue;
      memory.take(kPartBytes);
      parts.push_back(part);
    }
    for (const std::string& name : from.required) {
      budget_.step();
      const int property = from.find_property(name);
      if (property == SchemaNode::kNone) continue;
      const SchemaNode::Values& values = node(property).values;
      if (!values.only_scalar) continue;
      memory.take(2 * sizeof(Tags::value_type));  // as the list may have reserved
      tags.emplace_back(name, *values.only_scalar);
    }
  }
  if (types != kObjectType) return {};
  std::ranges::stable_sort(tags, {}, &Tags::value_type::first);
  const auto has_one_name = [](const auto& a, const auto& b) { return a.first == b.first; };
  tags.erase(std::unique(tags.begin(), tags.end(), has_one_name), tags.end());
  tags.shrink_to_fit();
  return tags;
}

const SchemaGoals::Tags& SchemaGoals::tags_of(int number) {
  constexpr size_t kEntryBytes = 96;
  // What only refers to another node has that one's tags: one list for all references.
  const auto only_refers = [](const SchemaNode& from) {
    return from.all_of.size() == 1 && from.types == kAllTypes && from.required.empty();
  };
  while (only_refers(node(number))) {
    budget_.step();
    number = node(number).all_of.front();
  }
  const auto [found, is_new] = tags_.try_emplace(number);
  if (is_new) {
    found->second = find_tags(number);
    tags_memory_.take(kEntryBytes + found->second.size() * sizeof(Tags::value_type));
  }
  return found->second;
}

bool SchemaGoals::differ_in_a_tag(const Tags& one, const Tags& other) {
  if (&one == &other) return false;
  for (auto i = one.begin(), j = other.begin(); i != one.end() && j != other.end();) {
    budget_.step();
    const int order = i->first.compare(j->first);
    if (order == 0 && i->second != j->second) return true;
    if (order <= 0) ++i;
    if (order >= 0) ++j;
  }
  return false;
}

std::vector<SchemaGoals::Option> SchemaGoals::options_of_one(const SchemaNode& one,
                                                             ScratchMemory& memory) {
  std::vector<Option> out;
  std::vector<const Tags*> tags;
  for (const int option : one.one_of) tags.push_back(&tags_of(option));
  for (size_t i = 0; i < one.one_of.size(); ++i) {
    Option option{{fulfils(one.one_of[i])}};
    memory.take(sizeof(Option) + sizeof(Literal));
    for (size_t j = 0; j < one.one_of.size(); ++j) {
      budget_.step();
      if (i == j || differ_in_a_tag(*tags[i], *tags[j])) continue;
      // Only values that may fulfil both have to be told apart.
      const uint8_t types = types_of(goal_of({fulfils(one.one_of[i]), fulfils(one.one_of[j])}));
      if (types == 0) continue;
      memory.take(2 * sizeof(Choice));  // as the list may have reserved
      option.choices.push_back({Choice::Kind::kNotOfTypes, one.one_of[j], types});
    }
    out.push_back(std::move(option));
  }
  return out;
}

std::vector<SchemaGoals::Option> SchemaGoals::options_of_not(int number, uint8_t types) {
  const SchemaNode& from = node(number);
  std::vector<Option> out;
  if ((types & ~from.types) != 0) {
    const auto others = static_cast<uint8_t>(~from.types & kAllTypes);
    out.push_back({{}, [others](Conjunction& rest) { rest.types &= others; }});
  }
  types &= from.types;  // what is of another type has failed already
  if (from.has_values) add_not_values(from, out);
  add_not_scalars(from, types, out);
  if ((types & kArrayType) != 0) add_not_array(from, out);
  if ((types & kObjectType) != 0) add_not_object(number, out);
  add_not_combinations(from, out);
  return out;
}

void SchemaGoals::add_not_values(const SchemaNode& from, std::vector<Option>& out) {
  const SchemaNode::Values& values = from.values;
  Option option;
  for (const int value : values.nodes) option.literals.push_back(fails(value));
  const uint8_t types = values.types;
  const bool has_strings = values.strings != SchemaNode::kNothing;
  const bool has_numbers = values.numbers != SchemaNode::kNothing;
  const int strings = has_strings ? grammar_.strings.complement(values.strings) : 0;
  const int numbers = has_numbers ? grammar_.numbers.complement(values.numbers) : 0;
  // What is of none of the node's types is an option of its own: the two do not overlap.
  option.edit = [this, own_types = from.types, types, has_strings, has_numbers, strings,
                 numbers](Conjunction& rest) {
    rest.types &= static_cast<uint8_t>(own_types & ~types);
    if (has_strings) rest.string_dfa = grammar_.strings.both(rest.string_dfa, strings);
    if (has_numbers) rest.number_dfa = grammar_.numbers.both(rest.number_dfa, numbers);
  };
  out.push_back(std::move(option));
}

void SchemaGoals::add_not_scalars(const SchemaNode& from, uint8_t types, std::vector<Option>& out) {
  if ((types & kNumberType) != 0) {
    for (const int dfa : from.number_dfas) {
      const int others = grammar_.numbers.complement(dfa);
      out.push_back({{}, [this, others](Conjunction& rest) {
                       rest.types &= kNumberType;
                       rest.number_dfa = grammar_.numbers.both(rest.number_dfa, others);
                     }});
    }
  }
  if ((types & kStringType) == 0) return;
  for (const int dfa : from.string_dfas) {
    const int others = grammar_.strings.complement(dfa);
    out.push_back({{}, [this, others](Conjunction& rest) {
                     rest.types &= kStringType;
                     rest.string_dfa = grammar_.strings.both(rest.string_dfa, others);
                   }});
  }
  if (from.min_length > 0) {
    out.push_back({{}, [&from](Conjunction& rest) {
                     rest.types &= kStringType;
                     rest.max_length = std::min(rest.max_length, from.min_length - 1);
                   }});
  }
  if (from.max_length != SchemaNode::kUnbounded) {
    out.push_back({{}, [&from](Conjunction& rest) {
                     rest.types &= kStringType;
                     rest.min_length = std::max(rest.min_length, from.max_length + 1);
                   }});
  }
}

void SchemaGoals::add_not_array(const SchemaNode& from, std::vector<Option>& out) {
  const auto add = [&](auto edit) {
    out.push_back({{}, [edit](Conjunction& rest) {
                     rest.types &= kArrayType;
                     edit(rest);
                   }});
  };
  for (uint64_t i = 0; i < from.prefix_items.size(); ++i) {
    const Literal literal = fails(from.prefix_items[i]);
    if (node_of(literal) == Schema::kTrue) continue;
    add([i, literal](Conjunction& rest) {
      rest.min_items = std::max(rest.min_items, i + 1);
      rest.items_at.push_back({i, literal});
    });
  }
  if (from.items != SchemaNode::kNone && from.items != Schema::kTrue) {
    add([&from](Conjunction& rest) {
      rest.item_counts.push_back(
          {fails(from.items), from.prefix_items.size(), 1, SchemaNode::kUnbounded});
    });
  }
  if (from.min_items > 0) {
    add([&from](Conjunction& rest) {
      rest.max_items = std::min(rest.max_items, from.min_items - 1);
    });
  }
  if (from.max_items != SchemaNode::kUnbounded) {
    add([&from](Conjunction& rest) {
      rest.min_items = std::max(rest.min_items, from.max_items + 1);
    });
  }
  if (from.unique_items) add([](Conjunction& rest) { rest.has_repeats = true; });
  if (from.contains == SchemaNode::kNone) return;
  const Literal contained = fulfils(from.contains);
  if (from.min_contains > 0) {
    add([&from, contained](Conjunction& rest) {
      rest.item_counts.push_back({contained, 0, 0, from.min_contains - 1});
    });
  }
  if (from.max_contains != SchemaNode::kUnbounded) {
    add([&from, contained](Conjunction& rest) {
      rest.item_counts.push_back({contained, 0, from.max_contains + 1, SchemaNode::kUnbounded});
    });
  }
}

void SchemaGoals::add_not_object(int number, std::vector<Option>& out) {
  const SchemaNode& from = node(number);
  const auto add = [&](auto edit) {
    out.push_back({{}, [edit](Conjunction& rest) {
                     rest.types &= kObjectType;
                     edit(rest);
                   }});
  };
  const auto is_needed = [&](const std::string& name) {
    return std::ranges::find(from.required, name) != from.required.end();
  };
  for (const auto& [name, schema] : from.properties) {
    if (schema == Schema::kTrue) continue;
    const std::string* member = &name;
    const Literal literal = fails(schema);
    // Where the member is needed, too, it may as well be left out.
    const bool may_lack = is_needed(name);
    add([member, literal, may_lack](Conjunction& rest) {
      if (!may_lack) rest.required.push_back(*member);
      rest.members.emplace_back(*member, literal);
    });
  }
  for (const auto& [dfa, schema] : from.pattern_properties) {
    if (schema == Schema::kTrue) continue;
    const Conjunction::MemberWitness witness{fails(schema), number, dfa};
    add([witness](Conjunction& rest) { rest.witnesses.push_back(witness); });
  }
  if (from.additional != SchemaNode::kNone && from.additional != Schema::kTrue) {
    const Conjunction::MemberWitness witness{fails(from.additional), number, DfaStore::kAll};
    add([witness](Conjunction& rest) { rest.witnesses.push_back(witness); });
  }
  if (from.property_names != SchemaNode::kNone && from.property_names != Schema::kTrue) {
    add([&from](Conjunction& rest) { rest.other_names.push_back(fails(from.property_names)); });
  }
  for (const std::string& name : from.required) {
    const int property = from.find_property(name);
    if (property != SchemaNode::kNone && property != Schema::kTrue) continue;  // as above
    add([&name](Conjunction& rest) { rest.forbidden.push_back(name); });
  }
  if (from.min_properties > 0) {
    add([&from](Conjunction& rest) {
      rest.max_properties = std::min(rest.max_properties, from.min_properties - 1);
    });
  }
  if (from.max_properties != SchemaNode::kUnbounded) {
    add([&from](Conjunction& rest) {
      rest.min_properties = std::max(rest.min_properties, from.max_properties + 1);
    });
  }
  for (const auto& [trigger, needed] : from.dependent_required) {
    for (const std::string& name : needed) {
      add([&trigger = trigger, &name](Conjunction& rest) {
        rest.required.push_back(trigger);
        rest.forbidden.push_back(name);
      });
    }
  }
  for (const auto& [trigger, schema] : from.dependent_schemas) {
    out.push_back({{fails(schema)},
                   [&trigger = trigger](Conjunction& rest) { require_name(rest, trigger); }});
  }
}

void SchemaGoals::add_not_combinations(const SchemaNode& from, std::vector<Option>& out) {
  const auto fails_all = [](const std::vector<int>& nodes) {
    Option option;
    for (const int failing : nodes) option.literals.push_back(fails(failing));
    return option;
  };
  for (const int part : from.all_of) out.push_back({{fails(part)}});
  if (!from.any_of.empty()) out.push_back(fails_all(from.any_of));
  if (!from.one_of.empty()) {
    out.push_back(fails_all(from.one_of));
    for (size_t i = 0; i < from.one_of.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        out.push_back({{fulfils(from.one_of[i]), fulfils(from.one_of[j])}});
      }
    }
  }
  if (from.not_node != SchemaNode::kNone) out.push_back({{fulfils(from.not_node)}});
  if (from.then_node != SchemaNode::kNone) {
    out.push_back({{fulfils(from.if_node), fails(from.then_node)}});
  }
  if (from.else_node != SchemaNode::kNone) {
    out.push_back({{fails(from.if_node), fails(from.else_node)}});
  }
}

}  // namespace quire::grammar
