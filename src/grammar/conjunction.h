#pragma once
// What a set of schema nodes demands of a value, without choices: all of it must hold.
//
// Thread safety: a value type.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema.h"

namespace quire::grammar {

// Node i is fulfilled (2 i) or is not fulfilled (2 i + 1).
using Literal = int32_t;
constexpr Literal fulfils(int node) {
  return node * 2;
}
constexpr Literal fails(int node) {
  return node * 2 + 1;
}
constexpr Literal opposite(Literal literal) {
  return literal ^ 1;
}
constexpr int node_of(Literal literal) {
  return literal / 2;
}
constexpr bool is_negative(Literal literal) {
  return (literal & 1) != 0;
}

struct Conjunction {
  struct ItemAt {
    uint64_t index;
    Literal literal;
  };
  struct ItemCount {  // of the items from `first` on that fulfil the literal
    Literal literal;
    uint64_t first;
    uint64_t min;
    uint64_t max;
  };
  // Some member must fulfil `literal`. Its name is one that the node does not list and none of the
  // node's patterns matches, or (pattern >= 0) one that the automaton matches.
  struct MemberWitness {
    Literal literal;
    int node;
    int pattern;
  };

  uint8_t types = kAllTypes;
  std::vector<Literal> done;  // literals that have been taken in, sorted
  int number_dfa = DfaStore::kAll;
  int string_dfa = DfaStore::kAll;
  uint64_t min_length = 0;
  uint64_t max_length = UINT64_MAX;

  std::vector<int> array_nodes;  // whose prefix_items and items hold
  std::vector<ItemAt> items_at;
  std::vector<ItemCount> item_counts;
  uint64_t min_items = 0;
  uint64_t max_items = UINT64_MAX;
  bool has_no_repeats = false;
  bool has_repeats = false;

  std::vector<int> object_nodes;  // whose properties, patterns and additional hold
  std::vector<std::pair<std::string, Literal>> members;  // of these names, where they are
  std::vector<std::string> required;
  std::vector<std::string> forbidden;
  std::vector<int> dependent_nodes;  // whose dependent_required holds
  std::vector<Literal> names;        // that each name fulfils
  std::vector<Literal> other_names;  // each of which some name fulfils
  std::vector<MemberWitness> witnesses;
  uint64_t min_properties = 0;
  uint64_t max_properties = UINT64_MAX;

  // How many of these lists SchemaGoals::has_members() has found to go together.
  struct Seen {
    size_t object_nodes = 0;
    size_t members = 0;
    size_t required = 0;
    size_t forbidden = 0;
    bool operator==(const Seen&) const = default;
  };
  Seen seen;
};

}  // namespace quire::grammar
