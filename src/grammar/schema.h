#pragma once
// A JSON Schema as a graph of nodes, one for each subschema, with references resolved.
//
// Drafts 4 to 2020-12. Keywords are kept as written; schema_goals.h finds the values that fulfil a
// set of nodes. Thread safety: immutable once parsed.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/dfa_store.h"
#include "grammar/json_types.h"

namespace quire::grammar {

struct SchemaNode {
  static constexpr int kNone = -1;     // in place of a node
  static constexpr int kNothing = -2;  // in place of an automaton: no text at all
  static constexpr uint64_t kUnbounded = UINT64_MAX;

  std::string pointer;  // where it stands: "#/properties/name"
  uint8_t types = kAllTypes;

  // "enum" and "const": the types of the values here, and which strings and numbers.
  struct Values {
    uint8_t types = 0;  // of null, true and false
    int strings = kNothing;
    int numbers = kNothing;
    std::vector<int> nodes;  // each an array or an object
    // The one string or number, where that is all: equal for equal values, and for no others.
    std::optional<std::string> only_scalar;
    bool operator==(const Values&) const = default;
  };
  bool has_values = false;
  Values values;

  std::vector<int> number_dfas;  // all hold
  std::vector<int> string_dfas;  // all hold
  uint64_t min_length = 0;
  uint64_t max_length = kUnbounded;

  std::vector<int> prefix_items;
  int items = kNone;  // of the items after the prefix
  uint64_t min_items = 0;
  uint64_t max_items = kUnbounded;
  bool unique_items = false;
  int contains = kNone;
  uint64_t min_contains = 1;
  uint64_t max_contains = kUnbounded;

  std::vector<std::pair<std::string, int>> properties;  // sorted by name
  std::vector<std::pair<int, int>> pattern_properties;  // automaton, node
  int additional = kNone;
  int property_names = kNone;
  std::vector<std::string> required;
  uint64_t min_properties = 0;
  uint64_t max_properties = kUnbounded;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  std::vector<std::pair<std::string, int>> dependent_schemas;

  std::vector<int> all_of;  // with what $ref leads to
  std::vector<int> any_of;
  std::vector<int> one_of;
  int not_node = kNone;
  int if_node = kNone;
  int then_node = kNone;
  int else_node = kNone;
  int unevaluated_items = kNone;
  int unevaluated_properties = kNone;

  bool operator==(const SchemaNode&) const = default;
  int find_property(std::string_view name) const;
  bool has_array_keywords() const { return !prefix_items.empty() || items != kNone; }
  bool has_object_keywords() const {
    return !properties.empty() || !pattern_properties.empty() || additional != kNone;
  }
};

struct Schema {
  static constexpr int kTrue = 0;   // the node that everything fulfils
  static constexpr int kFalse = 1;  // the node that nothing fulfils

  std::vector<SchemaNode> nodes;
  int root = kTrue;
};

// Throws Error, which names the keyword by its JSON pointer, for a text that is no schema or cannot
// be enforced.
Schema parse_schema(std::string_view text, DfaStore& strings, DfaStore& numbers, Budget& budget);

}  // namespace quire::grammar
