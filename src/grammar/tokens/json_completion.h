#pragma once
// The shortest ways to end JSON: values that fulfil a goal, and arrays and objects that have begun.
// What cannot be ended within kMost bytes, or not without what generation leaves out, is kNever.
//
// What generation leaves out: arrays that need repeated items, or several distinct ones of other
// values than strings, numbers and literals, or beside contains; strings of an automaton with
// lengths that take too many states; names of an object whose patterns combine in too many ways. A
// goal that only these fulfil cannot be generated.
//
// Thread safety: immutable once made.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_grammar.h"
#include "grammar/json_tree.h"
#include "grammar/tokens/name_list.h"
#include "grammar/tokens/number_lexer.h"
#include "grammar/tokens/string_lexer.h"

namespace quire::grammar {

// An item of a generated array without repeats: the same text for what readers take for equal.
inline std::string generated_item(std::string_view json) {
  return canonical_json(json, Numbers::kAsRead);
}

class JsonCompletion {
 public:
  static constexpr uint32_t kNever = UINT32_MAX;
  static constexpr uint32_t kMost = 1U << 18;

  // kNever where one is, or both are more than kMost.
  static uint32_t sum(uint32_t a, uint32_t b) {
    return a == kNever || b == kNever || a + b > kMost ? kNever : a + b;
  }

  using Counts = std::array<uint32_t, kMaxWitnesses>;

  struct ObjectFacts {
    std::vector<std::string> spelled;  // the names as JSON strings
    std::vector<uint32_t> required;    // indices of names
    // Names that are not listed: any, those of an automaton, or none.
    bool any_others = false;
    EscapedDfaPtr others = nullptr;
    bool leaves_out_others = false;  // those whose values cannot be generated
    bool is_simple = true;  // members do not depend on each other, and their number has no limit
  };
  struct ArrayFacts {
    bool is_possible = true;
    bool is_unique = false;  // repeats are forbidden
    bool can_be_unique = true;
    // Of an array that needs several items, where repeats may be forbidden: distinct values.
    std::vector<std::string> values;
  };
  struct GoalFacts {
    uint32_t cost = kNever;
    std::vector<NumberTarget> numbers;  // of slot 0
    std::vector<StringTarget> strings;
    std::vector<ArrayFacts> arrays;
    std::vector<ObjectFacts> objects;
  };
  // A member or item that is still to come.
  struct Part {
    std::string name;  // of a member, as it is
    int goal = kNoGoal;
    std::string text{};  // its value; empty: the shortest of the goal
  };

  JsonCompletion(const JsonGrammar& grammar, Budget& budget);

  const GoalFacts& facts(int goal) const { return facts_[static_cast<size_t>(goal)]; }
  // Bytes of the shortest value; kNever for kNoGoal.
  uint32_t cost(int goal) const { return goal == kNoGoal ? kNever : facts(goal).cost; }
  void append_value(int goal, std::string& out) const;

  // Bytes that end an array or object of `count` items or members, from behind the last of them,
  // with its bracket. At least `more` members or items come. `parts` gets what comes.
  uint32_t array_cost(int goal, size_t alternative, uint64_t count, const Counts& witnessed,
                      uint64_t more = 0, std::vector<Part>* parts = nullptr) const;
  uint32_t object_cost(int goal, size_t alternative, uint64_t count, const NameList& names,
                       const Counts& witnessed, uint64_t more = 0,
                       std::vector<Part>* parts = nullptr) const;
  // A member whose name begins with `prefix`, is not listed and not among `taken`, and that may be
  // these witnesses; nothing if none is found.
  std::optional<Part> another_member(const ObjectAlternative& object, const ObjectFacts& facts,
                                     const NameList& taken, uint32_t witnesses,
                                     const std::string& prefix = {}) const;
  // The same as text; `is_first`: no item or member has come.
  void append_parts(const std::vector<Part>& parts, bool is_object, bool is_first,
                    std::string& out) const;

  // Gives the items of an array without repeats values that are not among `items`.
  void make_distinct(int goal, size_t alternative, const NameList& items,
                     std::vector<Part>& parts) const;

  // The goals of a member's value; null where there can be no such member.
  const ChildGoals* goals_of(const ObjectAlternative& object, std::string_view name) const {
    return object.goals_of(name, grammar_.strings);
  }
  // What generation left out, as a sentence's list; empty: nothing.
  const std::string& left_out() const { return left_out_; }

 private:
  class Dfas;
  struct Candidate;

  const JsonGoal& goal(int number) const { return grammar_.goals[static_cast<size_t>(number)]; }
  void gather(Dfas& dfas);
  void gather_strings(const JsonGoal& from, GoalFacts& to, Dfas& dfas);
  void gather_objects(const JsonGoal& from, GoalFacts& to, Dfas& dfas);
  void find_costs(Budget& budget);
  bool leave_out_others(Dfas& dfas);
  uint32_t find_cost(int number) const;
  void find_distinct_values();
  // Up to `count` distinct values of a goal, the shortest of each kind first.
  std::vector<std::string> distinct_values(int number, size_t count) const;
  void leave_out(std::string_view what);
  uint32_t witnesses_cost(const ArrayAlternative& array, uint64_t count, const Counts& witnessed,
                          uint64_t least, std::vector<Part>* parts) const;
  uint32_t plan_object(const ObjectAlternative& object, const ObjectFacts& facts, uint64_t count,
                       const NameList& names, const Counts& witnessed, uint64_t more,
                       std::vector<Part>& parts) const;
  // The members that have to come, and those that may come to be witnesses.
  std::vector<Candidate> candidates(const ObjectAlternative& object, const ObjectFacts& facts,
                                    const NameList& names, uint32_t needed) const;
  bool choose(const std::vector<Candidate>& candidates, uint32_t needed,
              std::vector<Part>& parts) const;
  // Adds members until there are `least`, with names beside `taken`.
  bool fill_up(const ObjectAlternative& object, const ObjectFacts& facts, NameList taken,
               size_t least, std::vector<Part>& parts) const;

  const JsonGrammar& grammar_;
  std::vector<GoalFacts> facts_;
  std::string left_out_;
};

}  // namespace quire::grammar
