// Finds the goals of schema_goals.h that some value fulfils, and takes the others out.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/schema_goals.h"
#include "grammar/uri.h"

namespace quire::grammar {
namespace {

class Productive {
 public:
  explicit Productive(const std::vector<bool>& goals) : goals_(goals) {}

  bool goal(int number) const { return number != kNoGoal && goals_[static_cast<size_t>(number)]; }
  bool some(const ChildGoals& goals) const {
    return std::ranges::any_of(goals, [&](int number) { return goal(number); });
  }
  bool some_witness(const ChildGoals& goals, size_t witness) const {
    for (size_t mask = 0; mask < goals.size(); ++mask) {
      if ((mask >> witness & 1) != 0 && goal(goals[mask])) return true;
    }
    return false;
  }

  // How many items an array can have at most.
  uint64_t max_items(const ArrayAlternative& array) const {
    for (uint64_t i = 0; i <= array.prefix.size(); ++i) {
      if (!some(array.goals_at(i))) return std::min(array.max_items, i);
    }
    return array.max_items;
  }

  bool array(const ArrayAlternative& array) const {
    const uint64_t most = max_items(array);
    if (array.min_items > most) return false;
    for (size_t w = 0; w < array.witnesses.size(); ++w) {
      const ArrayAlternative::Witness& witness = array.witnesses[w];
      uint64_t places = 0;
      for (uint64_t i = witness.first; i < std::min<uint64_t>(array.prefix.size(), most); ++i) {
        if (some_witness(array.prefix[i], w)) ++places;
      }
      const uint64_t begin = std::max<uint64_t>(array.prefix.size(), witness.first);
      if (most > begin && some_witness(array.rest, w)) places += most - begin;
      if (places < witness.min) return false;
    }
    return true;
  }

  bool object(const ObjectAlternative& object) const {
    uint64_t named = 0;
    for (const ObjectAlternative::Name& name : object.names) {
      if (some(name.goals)) {
        ++named;
      } else if (name.is_required) {
        return false;
      }
    }
    const bool has_others =
        std::ranges::any_of(object.others, [&](const auto& other) { return some(other.second); });
    if (!has_others && named < object.min_properties) return false;
    for (size_t w = 0; w < static_cast<size_t>(object.num_witnesses); ++w) {
      const bool found =
          std::ranges::any_of(object.names,
                              [&](const auto& name) { return some_witness(name.goals, w); }) ||
          std::ranges::any_of(object.others,
                              [&](const auto& other) { return some_witness(other.second, w); });
      if (!found || object.max_properties == 0) return false;
    }
    return true;
  }

  bool value(const JsonGoal& goal) const {
    return goal.types != 0 || !goal.numbers.empty() || !goal.strings.empty() ||
           std::ranges::any_of(goal.arrays, [&](const auto& one) { return array(one); }) ||
           std::ranges::any_of(goal.objects, [&](const auto& one) { return object(one); });
  }

  void clean(ChildGoals& goals) const {
    for (int& number : goals) {
      if (!goal(number)) number = kNoGoal;
    }
  }

 private:
  const std::vector<bool>& goals_;
};

}  // namespace

void SchemaGoals::remove_unproductive(const std::vector<int>& order,
                                      std::vector<bool>& is_productive) {
  is_productive.assign(entries_.size(), false);
  const Productive productive(is_productive);
  // What is needed mostly comes later in `order`.
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (size_t i = order.size(); i-- > 0;) {
      const auto goal = static_cast<size_t>(order[i]);
      if (is_productive[goal]) continue;
      budget_.step();
      if (!productive.value(entries_[goal].goal)) continue;
      is_productive[goal] = true;
      has_changed = true;
    }
  }
  for (const int number : order) {
    JsonGoal& goal = entries_[static_cast<size_t>(number)].goal;
    std::erase_if(goal.arrays, [&](const auto& array) { return !productive.array(array); });
    std::erase_if(goal.objects, [&](const auto& object) { return !productive.object(object); });
    for (ArrayAlternative& array : goal.arrays) {
      array.max_items = productive.max_items(array);
      for (ChildGoals& goals : array.prefix) productive.clean(goals);
      productive.clean(array.rest);
    }
    for (ObjectAlternative& object : goal.objects) {
      for (ObjectAlternative::Name& name : object.names) productive.clean(name.goals);
      for (auto& other : object.others) productive.clean(other.second);
    }
  }
}

// The deepest place of which it can be said that nothing fulfils it.
std::string SchemaGoals::why_empty(int goal) const {
  const Entry& entry = entries_[static_cast<size_t>(goal)];
  for (const Literal literal : entry.literals) {
    const SchemaNode& from = node(node_of(literal));
    for (const std::string& name : from.required) {
      const int property = from.find_property(name);
      if (property == SchemaNode::kNone || is_negative(literal)) continue;
      const auto found = numbers_.find({fulfils(property)});
      const bool is_empty =
          property == Schema::kFalse ||
          (found != numbers_.end() &&
           entries_[static_cast<size_t>(found->second)].state == Entry::State::kDone &&
           entries_[static_cast<size_t>(found->second)].goal.is_empty());
      if (!is_empty) continue;
      const std::string place = fmt::format("{}/properties/{}", from.pointer, pointer_token(name));
      return property == Schema::kFalse ? place : why_empty(found->second);
    }
  }
  return entry.literals.empty() ? "#" : pointer_of(entry.literals);
}

}  // namespace quire::grammar
