#include "grammar/json_grammar.h"

#include <algorithm>

namespace quire::grammar {

const ObjectAlternative::Name* ObjectAlternative::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(
      names, name, {}, [](const Name& candidate) { return std::string_view(candidate.name); });
  return found != names.end() && found->name == name ? &*found : nullptr;
}

const ChildGoals* ObjectAlternative::goals_of(std::string_view name,
                                              const DfaStore& strings) const {
  if (const Name* listed = find(name)) return &listed->goals;
  uint64_t matches = 0;
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (strings.matches(patterns[i], name)) matches |= uint64_t{1} << i;
  }
  const auto found = others.find(matches);
  return found == others.end() ? nullptr : &found->second;
}

}  // namespace quire::grammar
