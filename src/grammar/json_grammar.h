#pragma once
// JSON's values as a grammar: what a schema becomes.
//
// A goal is a set of values. It is fulfilled by some scalars, and by arrays and objects of several
// alternatives, whose items and members have goals of their own. A value is read once for all goals
// that are asked of it (json_matcher.h), so that goals may overlap in any way.
// Thread safety: immutable once made.
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "grammar/dfa_store.h"
#include "grammar/json_types.h"

namespace quire::grammar {

inline constexpr int kNoGoal = -1;  // that nothing fulfils

// How many kinds of items or members an array or object may need a certain number of.
inline constexpr size_t kMaxWitnesses = 3;

// The goals of an item or member, one for each set of witnesses (bits) that it is to be: something
// of which an array or object needs a certain number. kNoGoal: it cannot be these.
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
  // Other names by which of the patterns they match, as bits; those that are not here are
  // forbidden.
  std::vector<int> patterns;
  std::unordered_map<uint64_t, ChildGoals> others;
  uint64_t min_properties = 0;
  uint64_t max_properties = UINT64_MAX;
  // Where the first is there, the others have to be.
  std::vector<std::pair<std::string, std::vector<std::string>>> dependent_required;
  int num_witnesses = 0;  // each of which some member has to be

  const Name* find(std::string_view name) const;
  // The names that are listed and may be there make up for what `others` does not allow.
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
