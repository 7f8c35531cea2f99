#pragma once
// JSON's values as a grammar: the compiled form of a schema.
//
// A goal is a set of values: some scalars, and arrays and objects of several alternatives, whose
// items and members have goals of their own. A value is read once for all goals that it is tested
// for (json_matcher.h), so goals may overlap in any way.
// Thread safety: immutable once made.
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/dfa_store.h"
#include "grammar/json_types.h"

namespace quire::grammar {

inline constexpr int kNoGoal = -1;  // that nothing fulfils

// For how many kinds of items or members an array or object may demand a certain number.
inline constexpr size_t kMaxWitnesses = 5;

// The goals of an item or member, one for each set (bits) of the kinds, "witnesses", of which an
// array or object demands a certain number: the goal of being exactly these. kNoGoal: it cannot be
// these.
using ChildGoals = std::vector<int>;

struct StringAlternative {
  int dfa = DfaStore::kAll;
  uint64_t min_length = 0;  // in characters
  uint64_t max_length = UINT64_MAX;
  bool operator==(const StringAlternative&) const = default;
};

struct ArrayAlternative {
  struct Witness {
    uint64_t first = 0;  // the first place that counts
    uint64_t min = 1;    // how many items are to be witnesses
    uint64_t max = UINT64_MAX;
  };
  enum class Repeats : uint8_t { kAllowed, kForbidden, kNeeded };

  std::vector<ChildGoals> prefix;
  ChildGoals rest;
  uint64_t min_items = 0;
  uint64_t max_items = UINT64_MAX;
  Repeats repeats = Repeats::kAllowed;
  std::vector<Witness> witnesses;

  const ChildGoals& goals_at(uint64_t index) const {
    return index < prefix.size() ? prefix[index] : rest;
  }
};

struct ObjectAlternative {
  struct Name {
    std::string name;
    ChildGoals goals;
    bool is_required = false;
  };
  std::vector<Name> names;  // sorted
  uint64_t num_required = 0;
  // Other names, by the set (bits) of the patterns that they match; a set that is not listed is
  // forbidden.
  std::vector<int> patterns;
  std::unordered_map<uint64_t, ChildGoals> others;
  uint64_t min_properties = 0;
  uint64_t max_properties = UINT64_MAX;
  // If the first is present, the others must be.
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  int num_witnesses = 0;  // each of which some member has to be

  const Name* find(std::string_view name) const;
  // The goals of a member of this name: the listed ones, else those for the patterns that it
  // matches. Null where it is forbidden.
  const ChildGoals* goals_of(std::string_view name, const DfaStore& strings) const;
};

struct JsonGoal {
  uint8_t types = 0;         // of null, false and true
  std::vector<int> numbers;  // automata of plain decimal notation
  std::vector<StringAlternative> strings;
  std::vector<ArrayAlternative> arrays;
  std::vector<ObjectAlternative> objects;

  bool is_empty() const {
    return types == 0 && numbers.empty() && strings.empty() && arrays.empty() && objects.empty();
  }
};

struct JsonGrammar {
  explicit JsonGrammar(DfaStore strings_store, DfaStore numbers_store)
      : strings(std::move(strings_store)), numbers(std::move(numbers_store)) {}

  std::vector<JsonGoal> goals;
  int root = 0;
  DfaStore strings;
  DfaStore numbers;
};

}  // namespace quire::grammar
