#pragma once
// Kinds of names that no object lists: two names are of one kind if they match the same patterns,
// as far as that changes what is asked of their values. What follows a name is the same for all of
// a kind, so it is found once for each kind and not for each name.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "grammar/json_grammar.h"

namespace quire::grammar {

class NameKinds {
 public:
  // The goals of a name's value for each way to read its object; null where there is no such
  // member.
  using Goals = std::vector<const ChildGoals*>;
  // Where the patterns are behind the bytes of a name that have come.
  using Begun = std::vector<int32_t>;

  // `ways`: the object that each way reads. They and `strings`, which has their patterns, must
  // outlive it.
  NameKinds(std::span<const ObjectAlternative* const> ways, const DfaStore& strings);

  // Behind the first bytes of a name, decoded.
  Begun begin(std::string_view written) const;
  // The kind of the name that `rest` finishes: an index less than size(), which may grow by it.
  size_t kind_of(const Begun& begun, std::string_view rest);
  size_t size() const { return goals_.size(); }
  const Goals& goals(size_t kind) const { return goals_[kind]; }

 private:
  struct Object {
    const ObjectAlternative* object = nullptr;
    std::vector<size_t> patterns;  // where they are in patterns_
  };

  void add_object(const ObjectAlternative& object);
  void advance(Begun& begun, std::string_view text) const;
  Goals find_goals(const std::vector<bool>& matched);
  // The first that is known of those that are equal.
  const ChildGoals* first_alike(const ChildGoals* goals);

  const DfaStore* strings_;
  std::vector<Object> objects_;  // each once
  std::vector<size_t> of_way_;   // where each way's object is there
  std::vector<int> patterns_;    // of all objects, each once
  std::vector<const ChildGoals*> different_;
  std::map<std::vector<bool>, size_t> by_matches_;  // kinds, by the patterns that match
  std::map<Goals, size_t> by_goals_;
  std::vector<Goals> goals_;
};

}  // namespace quire::grammar
