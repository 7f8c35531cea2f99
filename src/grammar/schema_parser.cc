#include "grammar/schema_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "grammar/nfa.h"
#include "grammar/number_dfa.h"
#include "grammar/uri.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr size_t kMaxNodes = 500'000;

uint8_t type_bits(std::string_view name) {
  if (name == "null") return kNullType;
  if (name == "boolean") return kFalseType | kTrueType;
  if (name == "number" || name == "integer") return kNumberType;
  if (name == "string") return kStringType;
  if (name == "array") return kArrayType;
  return name == "object" ? kObjectType : 0;
}

}  // namespace

SchemaParser::SchemaParser(const JsonTree& root, DfaStore& strings, DfaStore& numbers,
                           Budget& budget)
    : root_(root), index_(root), strings_(strings), numbers_(numbers), budget_(budget) {}

Schema SchemaParser::parse() {
  add_node("#");
  add_node("#");
  schema_.root = node_of(root_, 0, "#");
  for (size_t i = 0; i < pending_.size(); ++i) {
    budget_.step();
    read(Pending(pending_[i]));
  }
  return std::move(schema_);
}

void SchemaParser::refuse(const Context& at, std::string_view keyword,
                          std::string_view what) const {
  throw Error(fmt::format("{}/{}: {}", at.node.pointer, pointer_token(keyword), what));
}

int SchemaParser::add_node(std::string pointer) {
  if (schema_.nodes.size() >= kMaxNodes) {
    throw Error(fmt::format("{}: the schema has more than {} subschemas", pointer, kMaxNodes));
  }
  budget_.take(sizeof(SchemaNode) + pointer.size());
  schema_.nodes.emplace_back().pointer = std::move(pointer);
  return static_cast<int>(schema_.nodes.size()) - 1;
}

int SchemaParser::node_of(const JsonTree& tree, int resource, std::string pointer) {
  if (tree.kind == JsonTree::Kind::kTrue) return Schema::kTrue;
  if (tree.kind == JsonTree::Kind::kFalse) return Schema::kFalse;
  if (tree.kind != JsonTree::Kind::kObject) {
    throw Error(fmt::format("{}: expected a schema, which is an object or a boolean, got {}",
                            pointer, kind_name(tree)));
  }
  if (tree.members.empty()) return Schema::kTrue;
  const auto found = node_numbers_.find(&tree);
  if (found != node_numbers_.end()) return found->second;
  const int node = add_node(std::move(pointer));
  node_numbers_.emplace(&tree, node);
  pending_.push_back({&tree, index_.resource_at(tree, resource), node});
  return node;
}

int SchemaParser::child(const Context& at, const JsonTree& tree, std::string_view keyword,
                        std::string_view token) {
  std::string pointer = fmt::format("{}/{}", at.node.pointer, keyword);
  if (token.data() != nullptr) pointer += "/" + pointer_token(token);
  return node_of(tree, at.resource, std::move(pointer));
}

std::vector<int> SchemaParser::children(const Context& at, const JsonTree& list,
                                        std::string_view keyword) {
  if (list.kind != JsonTree::Kind::kArray) {
    refuse(at, keyword, fmt::format("expected an array of schemas, got {}", kind_name(list)));
  }
  std::vector<int> nodes;
  for (size_t i = 0; i < list.items.size(); ++i) {
    nodes.push_back(child(at, list.items[i], keyword, std::to_string(i)));
  }
  return nodes;
}

void SchemaParser::read(const Pending& pending) {
  SchemaNode node;
  node.pointer = schema_.nodes[static_cast<size_t>(pending.node)].pointer;
  budget_.enter(node.pointer);
  const Context at{*pending.tree, pending.resource, node};
  read_references(at);
  if (pending.tree->find("$ref") == nullptr || !index_.ref_stands_alone()) {
    read_types(at);
    read_values(at);
    read_numbers(at);
    read_strings(at);
    read_arrays(at);
    read_objects(at);
    read_dependencies(at);
    read_combinations(at);
    read_unevaluated(at);
  }
  schema_.nodes[static_cast<size_t>(pending.node)] = std::move(node);
}

void SchemaParser::read_references(const Context& at) {
  const JsonTree* reference = at.tree.find("$ref");
  const bool is_within_root =
      &at.tree == &root_ && reference != nullptr && reference->text.starts_with('#');
  if (!index_.names_its_draft() && reference != nullptr && at.tree.find("$id") != nullptr &&
      !is_within_root) {
    refuse(at, "$id", "drafts differ in what this means beside $ref: say which in $schema");
  }
  if (reference != nullptr) read_reference(at, "$ref", *reference);
  if (const JsonTree* ref = at.tree.find("$recursiveRef");
      ref != nullptr && index_.may_be(Draft::k2019)) {
    if (index_.has_recursive_anchor()) {
      refuse(at, "$recursiveRef", "not enforced beside $recursiveAnchor");
    }
    read_reference(at, "$recursiveRef", *ref);
  }
  if (const JsonTree* ref = at.tree.find("$dynamicRef");
      ref != nullptr && index_.may_be(Draft::k2020)) {
    const std::string name = resolve_reference("", ref->text).fragment;
    if (index_.num_dynamic_anchors(name) > 1) {
      refuse(at, "$dynamicRef", "not enforced where several $dynamicAnchor have this name");
    }
    read_reference(at, "$dynamicRef", *ref);
  }
}

void SchemaParser::read_reference(const Context& at, std::string_view keyword,
                                  const JsonTree& value) {
  if (value.kind != JsonTree::Kind::kString) {
    refuse(at, keyword, fmt::format("expected a string, got {}", kind_name(value)));
  }
  if (index_.is_ambiguous(value.text, at.resource)) {
    refuse(at, keyword,
           fmt::format("\"{}\" may be several subschemas, which have the same $id or anchor",
                       value.text));
  }
  const SchemaIndex::Place place = index_.find(value.text, at.resource);
  if (place.tree == nullptr) {
    refuse(
        at, keyword,
        fmt::format("\"{}\" is not in this schema; other documents are never fetched", value.text));
  }
  at.node.all_of.push_back(node_of(*place.tree, place.resource, place.pointer));
}

void SchemaParser::read_types(const Context& at) {
  const JsonTree* type = at.tree.find("type");
  if (type == nullptr) return;
  const bool is_list = type->kind == JsonTree::Kind::kArray;
  uint8_t types = 0;
  bool has_number = false;
  bool has_integer = false;
  for (size_t i = 0; i < (is_list ? type->items.size() : 1); ++i) {
    const JsonTree& name = is_list ? type->items[i] : *type;
    const uint8_t bits = name.kind == JsonTree::Kind::kString ? type_bits(name.text) : 0;
    if (bits == 0) {
      refuse(
          at, "type",
          fmt::format("{} is not a type; expected null, boolean, object, array, number, integer or "
                      "string",
                      beginning(name.raw, 80)));
    }
    types |= bits;
    has_number |= name.text == "number";
    has_integer |= name.text == "integer";
  }
  at.node.types &= types;
  if (has_integer && !has_number) {
    at.node.number_dfas.push_back(numbers_.get("integer", [&] { return integer_dfa(budget_); }));
  }
}

void SchemaParser::read_values(const Context& at) {
  const auto read_list = [&](std::string_view keyword, std::span<const JsonTree> list) {
    SchemaNode::Values values;
    std::vector<Decimal> numbers;
    Nfa strings;
    const int32_t begin = strings.add_state();
    bool has_strings = false;
    ScratchMemory memory(budget_);
    for (size_t i = 0; i < list.size(); ++i) {
      budget_.step();
      const JsonTree& value = list[i];
      if (value.kind == JsonTree::Kind::kNull) values.types |= kNullType;
      if (value.kind == JsonTree::Kind::kFalse) values.types |= kFalseType;
      if (value.kind == JsonTree::Kind::kTrue) values.types |= kTrueType;
      if (value.kind == JsonTree::Kind::kNumber) {
        const std::optional<Decimal> number = Decimal::parse(value.raw);
        if (!number) refuse(at, keyword, fmt::format("the number {} is too large", value.raw));
        numbers.push_back(*number);
      }
      if (value.kind == JsonTree::Kind::kString) {
        has_strings = true;
        memory.take(value.text.size() * Nfa::kStateBytes);
        strings.add_epsilon(begin, Nfa::Epsilon::kAlways,
                            strings.add_text(value.text, strings.accept()));
      }
      if (value.kind == JsonTree::Kind::kArray || value.kind == JsonTree::Kind::kObject) {
        values.nodes.push_back(
            node_of_value(value, fmt::format("{}/{}", at.node.pointer, keyword)));
      }
    }
    if (has_strings && list.size() == 1) values.only_scalar = '"' + list.front().text;
    if (!numbers.empty() && list.size() == 1) values.only_scalar = numbers.front().plain();
    if (has_strings) values.strings = strings_.add(strings.determinise(begin, budget_));
    if (!numbers.empty()) values.numbers = numbers_.add(number_set_dfa(numbers, budget_));
    return values;
  };
  const JsonTree* list = at.tree.find("enum");
  const JsonTree* constant = at.tree.find("const");
  if (list != nullptr) {
    if (list->kind != JsonTree::Kind::kArray) {
      refuse(at, "enum", fmt::format("expected an array, got {}", kind_name(*list)));
    }
    at.node.values = read_list("enum", list->items);
    at.node.has_values = true;
  }
  if (constant == nullptr || index_.draft() == Draft::k4) return;
  SchemaNode::Values values = read_list("const", {constant, 1});
  if (!at.node.has_values) {
    at.node.values = std::move(values);
    at.node.has_values = true;
    return;
  }
  const int both = add_node(at.node.pointer + "/const");
  schema_.nodes[static_cast<size_t>(both)].values = std::move(values);
  schema_.nodes[static_cast<size_t>(both)].has_values = true;
  at.node.all_of.push_back(both);
}

// A node that only this array or object, or a scalar within it, fulfils.
int SchemaParser::node_of_value(const JsonTree& value, const std::string& pointer) {
  budget_.step();
  SchemaNode node;
  node.pointer = pointer;
  switch (value.kind) {
    case JsonTree::Kind::kArray:
      node.types = kArrayType;
      node.min_items = node.max_items = value.items.size();
      for (const JsonTree& item : value.items) {
        node.prefix_items.push_back(node_of_value(item, pointer));
      }
      break;
    case JsonTree::Kind::kObject:
      node.types = kObjectType;
      node.additional = Schema::kFalse;
      for (const auto& [name, member] : value.members) {
        node.properties.emplace_back(name, node_of_value(member, pointer));
        node.required.push_back(name);
      }
      std::ranges::sort(node.properties);
      break;
    case JsonTree::Kind::kNumber: {
      const std::optional<Decimal> number = Decimal::parse(value.raw);
      if (!number) throw Error(fmt::format("{}: the number {} is too large", pointer, value.raw));
      node.types = kNumberType;
      node.number_dfas.push_back(numbers_.get("=" + number->plain(), [&] {
        return number_set_dfa({&*number, 1}, budget_);
      }));
      break;
    }
    case JsonTree::Kind::kString:
      node.types = kStringType;
      node.string_dfas.push_back(strings_.get("=" + value.text, [&] {
        Nfa nfa;
        return nfa.determinise(nfa.add_text(value.text, nfa.accept()), budget_);
      }));
      break;
    case JsonTree::Kind::kNull:
      node.types = kNullType;
      break;
    case JsonTree::Kind::kFalse:
      node.types = kFalseType;
      break;
    case JsonTree::Kind::kTrue:
      node.types = kTrueType;
      break;
  }
  const int number = add_node(pointer);
  schema_.nodes[static_cast<size_t>(number)] = std::move(node);
  return number;
}

std::optional<uint64_t> SchemaParser::count(const Context& at, std::string_view keyword) {
  const JsonTree* value = at.tree.find(keyword);
  if (value == nullptr) return std::nullopt;
  const std::optional<Decimal> number =
      value->kind == JsonTree::Kind::kNumber ? Decimal::parse(value->raw) : std::nullopt;
  if (!number || number->negative || !number->fraction_digits().empty()) {
    refuse(at, keyword,
           fmt::format("expected a whole number from 0, got {}", beginning(value->raw, 80)));
  }
  const std::string digits = number->integer_digits();
  if (digits.size() > 18) return SchemaNode::kUnbounded - 1;
  return digits.empty() ? 0 : std::stoull(digits);
}

std::optional<Decimal> SchemaParser::number(const Context& at, std::string_view keyword) {
  const JsonTree* value = at.tree.find(keyword);
  if (value == nullptr) return std::nullopt;
  if (value->kind != JsonTree::Kind::kNumber) {
    refuse(at, keyword, fmt::format("expected a number, got {}", kind_name(*value)));
  }
  std::optional<Decimal> number = Decimal::parse(value->raw);
  constexpr int64_t kMaxBoundExponent = 400;
  if (!number || number->exponent > kMaxBoundExponent || number->exponent < -kMaxBoundExponent) {
    refuse(at, keyword,
           fmt::format("expected a number within the range of doubles, got {}",
                       beginning(value->raw, 80)));
  }
  return number;
}

bool SchemaParser::flag(const Context& at, std::string_view keyword) {
  const JsonTree* value = at.tree.find(keyword);
  if (value == nullptr) return false;
  if (value->kind != JsonTree::Kind::kTrue && value->kind != JsonTree::Kind::kFalse) {
    refuse(at, keyword, fmt::format("expected a boolean, got {}", kind_name(*value)));
  }
  return value->kind == JsonTree::Kind::kTrue;
}

std::vector<std::string> SchemaParser::names(const Context& at, std::string_view keyword,
                                             const JsonTree& value) {
  std::vector<std::string> names;
  for (const JsonTree& item : value.items) {
    if (item.kind != JsonTree::Kind::kString) break;
    names.push_back(item.text);
  }
  if (value.kind != JsonTree::Kind::kArray || names.size() < value.items.size()) {
    refuse(at, keyword, "expected an array of strings");
  }
  return names;
}

}  // namespace quire::grammar
