#include "grammar/tokens/name_kinds.h"

#include <algorithm>

namespace quire::grammar {
namespace {

template <typename T>
size_t place_of(std::vector<T>& known, const T& one) {
  const auto found = std::ranges::find(known, one);
  const auto place = static_cast<size_t>(found - known.begin());
  if (found == known.end()) known.push_back(one);
  return place;
}

}  // namespace

NameKinds::NameKinds(std::span<const ObjectAlternative* const> ways, const DfaStore& strings)
    : strings_(&strings) {
  for (const ObjectAlternative* way : ways) {
    const auto known = std::ranges::find(objects_, way, &Object::object);
    of_way_.push_back(static_cast<size_t>(known - objects_.begin()));
    if (known == objects_.end()) add_object(*way);
  }
}

void NameKinds::add_object(const ObjectAlternative& object) {
  Object& added = objects_.emplace_back();
  added.object = &object;
  for (const int pattern : object.patterns) added.patterns.push_back(place_of(patterns_, pattern));
}

void NameKinds::advance(Begun& begun, std::string_view text) const {
  for (size_t i = 0; i < begun.size(); ++i) {
    if (patterns_[i] == DfaStore::kAll) continue;
    const Dfa& dfa = strings_->at(patterns_[i]);
    for (const char c : text) begun[i] = dfa.step(begun[i], static_cast<uint8_t>(c));
  }
}

NameKinds::Begun NameKinds::begin(std::string_view written) const {
  Begun begun;
  for (const int pattern : patterns_) {
    begun.push_back(pattern == DfaStore::kAll ? 0 : strings_->at(pattern).start());
  }
  advance(begun, written);
  return begun;
}

size_t NameKinds::kind_of(const Begun& begun, std::string_view rest) {
  Begun behind = begun;
  advance(behind, rest);
  std::vector<bool> matched;
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const int pattern = patterns_[i];
    matched.push_back(pattern == DfaStore::kAll || strings_->at(pattern).accepts(behind[i]));
  }
  const auto [found, is_new] = by_matches_.try_emplace(std::move(matched));
  if (!is_new) return found->second;
  Goals goals = find_goals(found->first);
  const auto [kind, is_new_kind] = by_goals_.try_emplace(goals, goals_.size());
  if (is_new_kind) goals_.push_back(std::move(goals));
  found->second = kind->second;
  return kind->second;
}

NameKinds::Goals NameKinds::find_goals(const std::vector<bool>& matched) {
  Goals of_objects;
  for (const Object& one : objects_) {
    uint64_t matches = 0;
    for (size_t i = 0; i < one.patterns.size(); ++i) {
      if (matched[one.patterns[i]]) matches |= uint64_t{1} << i;
    }
    const auto found = one.object->others.find(matches);
    of_objects.push_back(found == one.object->others.end() ? nullptr : first_alike(&found->second));
  }
  Goals goals;
  for (const size_t object : of_way_) goals.push_back(of_objects[object]);
  return goals;
}

const ChildGoals* NameKinds::first_alike(const ChildGoals* goals) {
  const auto known =
      std::ranges::find_if(different_, [&](const auto* one) { return *one == *goals; });
  if (known != different_.end()) return *known;
  different_.push_back(goals);
  return goals;
}

}  // namespace quire::grammar
