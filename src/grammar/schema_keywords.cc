// The keywords of schema_parser.h for numbers, strings, arrays and objects, and those that combine
// schemas.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/format.h"
#include "grammar/number_dfa.h"
#include "grammar/regex.h"
#include "grammar/schema_parser.h"
#include "grammar/uri.h"
#include "grammar/visible_text.h"
#include "quire/error.h"

namespace quire::grammar {

void SchemaParser::read_numbers(const Context& at) {
  const auto add_bound = [&](const Decimal& bound, Bound kind) {
    const std::string key = fmt::format("{} {}", static_cast<int>(kind), bound.plain());
    at.node.number_dfas.push_back(
        numbers_.get(key, [&] { return bound_dfa(bound, kind, budget_); }));
  };
  struct Keyword {
    std::string_view name;
    std::string_view exclusive;
    Bound kind;
    Bound exclusive_kind;
  };
  for (const Keyword& keyword :
       {Keyword{"minimum", "exclusiveMinimum", Bound::kAtLeast, Bound::kMoreThan},
        Keyword{"maximum", "exclusiveMaximum", Bound::kAtMost, Bound::kLessThan}}) {
    // In draft 4 exclusiveMinimum is a boolean that changes minimum.
    const JsonTree* exclusive = at.tree.find(keyword.exclusive);
    const bool is_flag = exclusive != nullptr && (exclusive->kind == JsonTree::Kind::kTrue ||
                                                  exclusive->kind == JsonTree::Kind::kFalse);
    if (is_flag && !index_.may_be(Draft::k4)) {
      refuse(at, keyword.exclusive, "expected a number, got a boolean; it is one in draft 4 alone");
    }
    if (exclusive != nullptr && !is_flag && index_.draft() == Draft::k4) {
      refuse(at, keyword.exclusive,
             fmt::format("expected a boolean in draft 4, got {}", kind_name(*exclusive)));
    }
    const bool is_exclusive = is_flag && exclusive->kind == JsonTree::Kind::kTrue;
    if (const std::optional<Decimal> bound = number(at, keyword.name)) {
      add_bound(*bound, is_exclusive ? keyword.exclusive_kind : keyword.kind);
    }
    if (is_flag) continue;
    if (const std::optional<Decimal> bound = number(at, keyword.exclusive)) {
      add_bound(*bound, keyword.exclusive_kind);
    }
  }
  if (const std::optional<Decimal> divisor = number(at, "multipleOf")) {
    if (divisor->negative || divisor->is_zero()) {
      refuse(at, "multipleOf", "expected a number above 0");
    }
    try {
      at.node.number_dfas.push_back(numbers_.get("multiple " + divisor->plain(),
                                                 [&] { return multiple_dfa(*divisor, budget_); }));
    } catch (const Error& error) {
      const std::string_view what = error.what();
      if (what.starts_with('#')) throw;  // a limit, which says where
      refuse(at, "multipleOf", what);
    }
  }
}

int SchemaParser::pattern(const Context& at, std::string_view keyword, const std::string& text) {
  try {
    return strings_.get("/" + text,
                        [&] { return compile_regex_dfa(text, RegexMatch::kAnywhere, budget_); });
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with('#')) throw;  // a limit, which says where
    refuse(at, keyword, fmt::format("\"{}\": {}", visible_text(beginning(text, 200)), what));
  }
}

void SchemaParser::read_strings(const Context& at) {
  at.node.min_length = count(at, "minLength").value_or(0);
  at.node.max_length = count(at, "maxLength").value_or(SchemaNode::kUnbounded);
  if (const JsonTree* text = at.tree.find("pattern")) {
    if (text->kind != JsonTree::Kind::kString) {
      refuse(at, "pattern", fmt::format("expected a string, got {}", kind_name(*text)));
    }
    at.node.string_dfas.push_back(pattern(at, "pattern", text->text));
  }
  for (const std::string_view keyword : {"contentEncoding", "contentMediaType"}) {
    // Later drafts only describe with these.
    const bool may_assert = index_.draft() == Draft::k7 || !index_.names_its_draft();
    if (may_assert && at.tree.find(keyword) != nullptr) {
      refuse(at, keyword,
             "not enforced, though draft 7 lets it assert; later drafts describe with it");
    }
  }
  const JsonTree* name = at.tree.find("format");
  if (name != nullptr && name->kind != JsonTree::Kind::kString) {
    refuse(at, "format", fmt::format("expected a string, got {}", kind_name(*name)));
  }
  if (name == nullptr || !budget_.limits().assert_formats) return;
  const Format format = find_format(name->text);
  if (format.kind == Format::Kind::kRefused) {
    refuse(at, "format", fmt::format("\"{}\" is not enforced", name->text));
  }
  if (format.kind == Format::Kind::kUnknown) return;
  at.node.max_length = std::min(at.node.max_length, format.max_length);
  at.node.string_dfas.push_back(
      strings_.get("format " + name->text, [&] { return compile_format(format, budget_); }));
}

void SchemaParser::read_arrays(const Context& at) {
  SchemaNode& node = at.node;
  node.min_items = count(at, "minItems").value_or(0);
  node.max_items = count(at, "maxItems").value_or(SchemaNode::kUnbounded);
  node.unique_items = flag(at, "uniqueItems");
  const JsonTree* items = at.tree.find("items");
  if (const JsonTree* prefix = at.tree.find("prefixItems");
      prefix != nullptr && index_.draft() >= Draft::k2020) {
    node.prefix_items = children(at, *prefix, "prefixItems");
  }
  if (items != nullptr && items->kind == JsonTree::Kind::kArray) {
    if (!node.prefix_items.empty()) refuse(at, "items", "expected a schema beside prefixItems");
    if (index_.names_its_draft() && index_.draft() >= Draft::k2020) {
      refuse(at, "items", "expected a schema, got an array; in draft 2020-12 that is prefixItems");
    }
    node.prefix_items = children(at, *items, "items");
    if (const JsonTree* rest = at.tree.find("additionalItems")) {
      node.items = child(at, *rest, "additionalItems");
    }
  } else if (items != nullptr) {
    node.items = child(at, *items, "items");
  }
  const JsonTree* contains = at.tree.find("contains");
  if (contains == nullptr || index_.draft() == Draft::k4) return;
  node.contains = child(at, *contains, "contains");
  if (index_.draft() < Draft::k2019) return;
  node.min_contains = count(at, "minContains").value_or(1);
  node.max_contains = count(at, "maxContains").value_or(SchemaNode::kUnbounded);
}

void SchemaParser::read_objects(const Context& at) {
  SchemaNode& node = at.node;
  const auto expect_object = [&](const JsonTree& value, std::string_view keyword) {
    if (value.kind == JsonTree::Kind::kObject) return;
    refuse(at, keyword, fmt::format("expected an object, got {}", kind_name(value)));
  };
  node.min_properties = count(at, "minProperties").value_or(0);
  node.max_properties = count(at, "maxProperties").value_or(SchemaNode::kUnbounded);
  if (const JsonTree* required = at.tree.find("required")) {
    node.required = names(at, "required", *required);
  }
  if (const JsonTree* properties = at.tree.find("properties")) {
    expect_object(*properties, "properties");
    for (const auto& [name, schema] : properties->members) {
      node.properties.emplace_back(name, child(at, schema, "properties", name));
    }
    std::ranges::sort(node.properties);
  }
  if (const JsonTree* patterns = at.tree.find("patternProperties")) {
    expect_object(*patterns, "patternProperties");
    for (const auto& [text, schema] : patterns->members) {
      const int dfa = pattern(at, "patternProperties", text);
      node.pattern_properties.emplace_back(dfa, child(at, schema, "patternProperties", text));
    }
  }
  if (const JsonTree* additional = at.tree.find("additionalProperties")) {
    node.additional = child(at, *additional, "additionalProperties");
  }
  if (const JsonTree* property_names = at.tree.find("propertyNames");
      property_names != nullptr && index_.draft() > Draft::k4) {
    node.property_names = child(at, *property_names, "propertyNames");
  }
}

void SchemaParser::read_dependencies(const Context& at) {
  SchemaNode& node = at.node;
  const auto read = [&](std::string_view keyword, bool may_name, bool may_be_schema) {
    const JsonTree* members = at.tree.find(keyword);
    if (members == nullptr) return;
    if (members->kind != JsonTree::Kind::kObject) {
      refuse(at, keyword, fmt::format("expected an object, got {}", kind_name(*members)));
    }
    for (const auto& [name, value] : members->members) {
      if (may_name && value.kind == JsonTree::Kind::kArray) {
        node.dependent_required.emplace_back(name, names(at, keyword, value));
      } else if (may_name && may_be_schema && value.kind == JsonTree::Kind::kString) {
        node.dependent_required.emplace_back(name, std::vector<std::string>{value.text});
      } else if (may_be_schema) {
        node.dependent_schemas.emplace_back(name, child(at, value, keyword, name));
      } else {
        refuse(at, keyword, "expected arrays of strings");
      }
    }
  };
  read("dependencies", true, true);
  if (index_.draft() < Draft::k2019) return;
  read("dependentRequired", true, false);
  read("dependentSchemas", false, true);
}

void SchemaParser::read_combinations(const Context& at) {
  SchemaNode& node = at.node;
  const auto read_list = [&](std::string_view keyword) {
    const JsonTree* list = at.tree.find(keyword);
    if (list == nullptr) return std::vector<int>();
    std::vector<int> nodes = children(at, *list, keyword);
    if (nodes.empty()) refuse(at, keyword, "expected at least one schema");
    return nodes;
  };
  const auto read_one = [&](std::string_view keyword) {
    const JsonTree* schema = at.tree.find(keyword);
    return schema == nullptr ? SchemaNode::kNone : child(at, *schema, keyword);
  };
  for (const int all : read_list("allOf")) node.all_of.push_back(all);
  node.any_of = read_list("anyOf");
  node.one_of = read_list("oneOf");
  node.not_node = read_one("not");
  if (index_.draft() < Draft::k7) return;
  node.if_node = read_one("if");
  if (node.if_node == SchemaNode::kNone) return;
  node.then_node = read_one("then");
  node.else_node = read_one("else");
}

void SchemaParser::read_unevaluated(const Context& at) {
  if (index_.draft() < Draft::k2019) return;
  if (const JsonTree* schema = at.tree.find("unevaluatedItems")) {
    at.node.unevaluated_items = child(at, *schema, "unevaluatedItems");
  }
  if (const JsonTree* schema = at.tree.find("unevaluatedProperties")) {
    at.node.unevaluated_properties = child(at, *schema, "unevaluatedProperties");
  }
}

}  // namespace quire::grammar
