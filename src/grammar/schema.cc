#include "grammar/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "grammar/schema_parser.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

// The nodes that are asked of the same value as `node`.
std::vector<int> in_place(const SchemaNode& node) {
  std::vector<int> out = node.all_of;
  out.insert(out.end(), node.any_of.begin(), node.any_of.end());
  out.insert(out.end(), node.one_of.begin(), node.one_of.end());
  for (const auto& dependent : node.dependent_schemas) out.push_back(dependent.second);
  for (const int other : {node.not_node, node.if_node, node.then_node, node.else_node}) {
    if (other != SchemaNode::kNone) out.push_back(other);
  }
  return out;
}

constexpr int kMaxSchemaDepth = 128;

// Refuses a schema that asks itself of the same value: {"$ref": "#"}.
void check_recursion(const Schema& schema) {
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(schema.nodes.size(), Mark::kNew);
  struct Visit {
    int node;
    std::vector<int> next;
  };
  for (int first = 0; first < static_cast<int>(schema.nodes.size()); ++first) {
    if (marks[static_cast<size_t>(first)] != Mark::kNew) continue;
    std::vector<Visit> stack;
    const auto open = [&](int node) {
      marks[static_cast<size_t>(node)] = Mark::kOpen;
      stack.push_back({node, in_place(schema.nodes[static_cast<size_t>(node)])});
    };
    open(first);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next.empty()) {
        marks[static_cast<size_t>(top.node)] = Mark::kDone;
        stack.pop_back();
        continue;
      }
      const int next = top.next.back();
      top.next.pop_back();
      const Mark mark = marks[static_cast<size_t>(next)];
      if (mark == Mark::kOpen) {
        throw Error(fmt::format("{}: recursion without end: this schema is part of itself",
                                schema.nodes[static_cast<size_t>(next)].pointer));
      }
      if (mark == Mark::kNew) open(next);
    }
  }
}

// Turns unevaluatedProperties and unevaluatedItems into additionalProperties and items of a node
// that knows what $ref and allOf evaluate. Other keywords evaluate what depends on the value.
class Unevaluated {
 public:
  Unevaluated(Schema& schema, Budget& budget) : schema_(schema), budget_(budget) {}

  void resolve() {
    const int count = static_cast<int>(schema_.nodes.size());
    for (int i = 0; i < count; ++i) {
      if (demands(at(i).unevaluated_properties)) resolve_properties(i);
      if (demands(at(i).unevaluated_items)) resolve_items(i);
    }
  }

 private:
  SchemaNode& at(int i) { return schema_.nodes[static_cast<size_t>(i)]; }

  // Whether there is such a schema that not everything fulfils, as far as its own keywords say.
  bool demands(int schema) {
    if (schema == SchemaNode::kNone) return false;
    if (schema == Schema::kFalse) return true;  // no node of keywords
    SchemaNode anything;
    anything.pointer = at(schema).pointer;
    return at(schema) != anything;
  }

  // The node and what it asks in any case.
  void collect(int i, int root, std::string_view keyword, std::set<int>& out) {
    constexpr size_t kMaxParts = 1000;
    budget_.step();
    if (!out.insert(i).second) return;
    if (out.size() > kMaxParts) {
      throw Error(
          fmt::format("{}/{}: beside more than {} schemas", at(root).pointer, keyword, kMaxParts));
    }
    const SchemaNode& node = at(i);
    if (!node.any_of.empty() || !node.one_of.empty() || node.if_node != SchemaNode::kNone ||
        !node.dependent_schemas.empty()) {
      throw Error(fmt::format(
          "{}/{}: not enforced beside anyOf, oneOf, if or dependentSchemas, on which it depends "
          "what is evaluated",
          at(root).pointer, keyword));
    }
    for (const int part : node.all_of) collect(part, root, keyword, out);
  }

  void resolve_properties(int i) {
    std::set<int> parts;
    collect(i, i, "unevaluatedProperties", parts);
    SchemaNode node;
    node.pointer = at(i).pointer + "/unevaluatedProperties";
    node.additional = at(i).unevaluated_properties;
    std::set<std::string> names;
    for (const int part : parts) {
      const SchemaNode& from = at(part);
      const bool evaluates_all = from.additional != SchemaNode::kNone ||
                                 (part != i && from.unevaluated_properties != SchemaNode::kNone);
      if (evaluates_all) return;
      for (const auto& property : from.properties) names.insert(property.first);
      for (const auto& pattern : from.pattern_properties) {
        node.pattern_properties.emplace_back(pattern.first, Schema::kTrue);
      }
    }
    for (const std::string& name : names) node.properties.emplace_back(name, Schema::kTrue);
    add(i, std::move(node));
  }

  void resolve_items(int i) {
    std::set<int> parts;
    collect(i, i, "unevaluatedItems", parts);
    SchemaNode node;
    node.pointer = at(i).pointer + "/unevaluatedItems";
    node.items = at(i).unevaluated_items;
    size_t prefix = 0;
    for (const int part : parts) {
      const SchemaNode& from = at(part);
      if (from.contains != SchemaNode::kNone) {
        throw Error(
            fmt::format("{}/unevaluatedItems: not enforced beside contains", at(i).pointer));
      }
      const bool evaluates_all = from.items != SchemaNode::kNone ||
                                 (part != i && from.unevaluated_items != SchemaNode::kNone);
      if (evaluates_all) return;
      prefix = std::max(prefix, from.prefix_items.size());
    }
    node.prefix_items.assign(prefix, Schema::kTrue);
    add(i, std::move(node));
  }

  void add(int i, SchemaNode node) {
    const int number = static_cast<int>(schema_.nodes.size());
    schema_.nodes.push_back(std::move(node));
    at(i).all_of.push_back(number);
  }

  Schema& schema_;
  Budget& budget_;
};

}  // namespace

int SchemaNode::find_property(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      properties, name, {}, [](const auto& property) { return std::string_view(property.first); });
  return found != properties.end() && found->first == name ? found->second : kNone;
}

Schema parse_schema(std::string_view text, DfaStore& strings, DfaStore& numbers, Budget& budget) {
  const JsonTree root = parse_json_tree(text, kMaxSchemaDepth, &budget);
  Schema schema = SchemaParser(root, strings, numbers, budget).parse();
  check_recursion(schema);
  Unevaluated(schema, budget).resolve();
  return schema;
}

}  // namespace quire::grammar
