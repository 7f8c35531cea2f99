#pragma once
// Turns the nodes of a schema into the goals of a JsonGrammar.
//
// A goal is requested as a set of literals that must all hold. Keywords that combine schemas
// (anyOf, oneOf, not, if) become alternatives without them: a disjunctive normal form, made level
// by level, so that recursion in a schema stays recursion of goals.
// Thread safety: one thread at a time.
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/conjunction.h"
#include "grammar/json_grammar.h"

namespace quire::grammar {

class SchemaGoals {
 public:
  SchemaGoals(const Schema& schema, JsonGrammar& grammar, Budget& budget)
      : schema_(schema), grammar_(grammar), budget_(budget) {}

  // Fills grammar.goals and grammar.root. Throws Error if nothing fulfils the schema.
  void build();

 private:
  static constexpr size_t kMaxAlternatives = 2000;  // of a goal

  struct Choice {
    enum class Kind { kAnyOf, kOneOf, kIf, kDependent, kNot, kNotOfTypes };
    Kind kind;
    int node;
    size_t index = 0;  // of what the keyword lists; of kNotOfTypes: the types
  };
  struct Option {
    std::vector<Literal> literals{};
    std::function<void(Conjunction&)> edit{};
    std::vector<Choice> choices{};
  };
  struct Search {
    Conjunction all;
    std::vector<Literal> todo;
    std::vector<Choice> choices;
  };
  struct Entry {
    std::vector<Literal> literals;
    enum class State { kNew, kOpen, kDone } state = State::kNew;
    JsonGoal goal;
    size_t num_alternatives = 0;
  };

  const SchemaNode& node(int number) const { return schema_.nodes[static_cast<size_t>(number)]; }
  const std::string& pointer_of(const std::vector<Literal>& literals) const;
  // The number of a goal, kNoGoal where it plainly contradicts itself.
  int goal_of(std::vector<Literal> literals);
  void expand(int goal);
  // Whether nothing fulfils it, as far as can be told without following recursion.
  bool is_empty(int goal);
  // The types of the values that may fulfil it.
  uint8_t types_of(int goal);

  // Adds to a goal the alternatives that follow from a search.
  void run(Search search, int goal);
  void search_all(Search search, int goal);
  // False where the search cannot succeed any more once an option is taken.
  bool take_option(Search& search, Option option);
  // False where an object lacks a member that it needs, as nothing fulfils what is asked of that.
  // Looks only at names of which more is asked than when it looked last.
  bool has_members(Conjunction& all);
  // The required names of which more is asked; nullopt where one of them is forbidden.
  std::optional<std::set<std::string_view>> names_to_look_at(const Conjunction& all);
  bool take_all(Search& search);
  bool take(Search& search, Literal literal);
  bool take_node(Search& search, int number);
  // `memory` is to live as long as the options.
  std::vector<Option> options(const Choice& choice, const Conjunction& all, ScratchMemory& memory);
  std::vector<Option> options_of_one(const SchemaNode& one, ScratchMemory& memory);
  // If the node only asks that an object's member, where it is one, has one certain value.
  struct ValueTest {
    const std::string* name;
    int value;       // the node of the member
    bool is_needed;  // the member
    bool is_object;  // else other types fulfil it
  };
  std::optional<ValueTest> value_test(int number) const;
  // Of `first` and all choices of the search with a test of the same member, which are taken out:
  // what each value of the member leads to. Empty, and nothing taken out, where there are few.
  // Throws Error if there are more than kMaxAlternatives values.
  std::vector<Option> options_by_value(const Choice& first, Search& search, ScratchMemory& memory);
  // Members that are one certain string or number in every value that fulfils a node, which is an
  // object; sorted by their names. Empty where other values may fulfil it.
  using Tags = std::vector<std::pair<std::string_view, std::string_view>>;
  const Tags& tags_of(int number);
  Tags find_tags(int number);
  bool differ_in_a_tag(const Tags& one, const Tags& other);
  std::vector<Option> options_of_not(int number, uint8_t types);
  void add_not_values(const SchemaNode& node, std::vector<Option>& out);
  void add_not_scalars(const SchemaNode& node, uint8_t types, std::vector<Option>& out);
  void add_not_array(const SchemaNode& node, std::vector<Option>& out);
  void add_not_object(int number, std::vector<Option>& out);
  void add_not_combinations(const SchemaNode& node, std::vector<Option>& out);

  void finish(Conjunction& all, int goal);
  bool make_array(const Conjunction& all, int goal, ArrayAlternative& out);
  ChildGoals item_goals(const Conjunction& all, const ArrayAlternative& array, uint64_t index);
  bool make_object(const Conjunction& all, int goal, ObjectAlternative& out);
  bool make_others(const Conjunction& all, int goal, ObjectAlternative& out);
  ChildGoals member_goals(const Conjunction& all, const std::string* name, uint64_t matches,
                          const std::vector<int>& patterns, uint64_t must_match,
                          uint64_t name_witnesses);
  // For each name, the set (bits) of those patterns that match it; each set once.
  std::vector<uint64_t> sets_of_patterns(const std::vector<int>& patterns,
                                         const std::string& pointer);
  // The automaton of the strings that fulfil a set of literals.
  int name_language(std::vector<Literal> literals, int goal);
  int with_length(int dfa, uint64_t min, uint64_t max, int goal);

  void remove_unproductive(const std::vector<int>& order, std::vector<bool>& is_productive);
  std::vector<int> reachable();
  std::string why_empty(int goal) const;

  const Schema& schema_;
  JsonGrammar& grammar_;
  Budget& budget_;
  std::deque<Entry> entries_;
  std::map<std::vector<Literal>, int> numbers_;
  std::map<int, Tags> tags_;  // of nodes
  ScratchMemory tags_memory_{budget_};
  int depth_ = 0;         // of goals
  int search_depth_ = 0;  // of choices that have more options
};

}  // namespace quire::grammar
