// The names of members: which may come, and what each leads to.
#include <algorithm>

#include "grammar/tokens/json_frames.h"

namespace quire::grammar {

bool JsonFrames::has_dependents(const ObjectAlternative& object, std::string_view name) {
  return std::ranges::any_of(object.dependent_required,
                             [&](const auto& dependent) { return dependent.first == name; });
}

const JsonFrames::RestBehind& JsonFrames::rest_behind_new(const JsonFrame& frame, size_t way,
                                                          const JsonConfiguration& with,
                                                          uint32_t witnesses,
                                                          RestsBehind& known) const {
  const auto [found, is_new] = known.try_emplace({way, witnesses});
  RestBehind& rest = found->second;
  if (is_new) {
    std::vector<JsonCompletion::Part> parts;
    rest.bytes = rest_of(frame, with, frame.count + 1, frame.names, 0, &parts);
    for (JsonCompletion::Part& part : parts) rest.names.push_back(std::move(part.name));
    std::ranges::sort(rest.names);
  }
  return rest;
}

uint32_t JsonFrames::rest_with_name(const JsonFrame& frame, const JsonConfiguration& with,
                                    std::string_view name) const {
  return rest_of(frame, with, frame.count + 1, frame.names.with(name), 0, nullptr);
}

uint32_t JsonFrames::rest_behind(const JsonFrame& frame, size_t way, const JsonConfiguration& with,
                                 uint32_t witnesses, std::string_view name,
                                 RestsBehind& known) const {
  const ObjectAlternative& object = object_of(frame, with);
  // Whether another name is used changes nothing, as long as it is not one that comes otherwise.
  // One that is not listed may be in the way of the name that is made up for another member.
  const bool is_listed = object.find(name) != nullptr;
  const bool has_own =
      is_listed ? has_dependents(object, name) : !object.dependent_required.empty();
  if (!has_own) {
    const RestBehind& rest = rest_behind_new(frame, way, with, witnesses, known);
    const bool depends = rest.bytes == kNever || std::ranges::binary_search(rest.names, name);
    if (!depends) return rest.bytes;
  }
  return rest_with_name(frame, with, name);
}

template <typename Goals, typename Rest>
JsonContextPtr JsonFrames::begin_member(const JsonContext& context, NameList names,
                                        const Goals& goals_of_way, const Rest& rest) const {
  const JsonFrame& frame = *context.frame;
  JsonContext inside;
  JsonFrame next = frame;
  next.names = std::move(names);
  next.configurations.clear();
  for (size_t way = 0; way < frame.configurations.size(); ++way) {
    const JsonConfiguration& configuration = frame.configurations[way];
    if (frame.count >= object_of(frame, configuration).max_properties) continue;
    const ChildGoals* goals = goals_of_way(way);
    if (goals == nullptr) continue;
    const auto rest_of_way = [&](const JsonConfiguration& with, uint32_t witnesses) {
      return rest(way, with, witnesses);
    };
    add_children(frame, configuration, *goals, rest_of_way, inside, next);
  }
  if (next.configurations.empty()) return nullptr;
  inside.frame = std::make_shared<const JsonFrame>(std::move(next));
  return std::make_shared<const JsonContext>(std::move(inside));
}

JsonContextPtr JsonFrames::begin_value_of(const JsonContext& context, std::string_view name) const {
  RestsBehind known;
  return begin_value_of(context, name, known);
}

JsonContextPtr JsonFrames::begin_value_of(const JsonContext& context, std::string_view name,
                                          RestsBehind& known) const {
  const JsonFrame& frame = *context.frame;
  if (frame.names.contains(name)) return nullptr;
  const auto goals_of_way = [&](size_t way) {
    return completion_.goals_of(object_of(frame, frame.configurations[way]), name);
  };
  const auto rest = [&](size_t way, const JsonConfiguration& with, uint32_t witnesses) {
    return rest_behind(frame, way, with, witnesses, name, known);
  };
  return begin_member(context, frame.names.with(name), goals_of_way, rest);
}

NameKinds JsonFrames::kinds_of_names(const JsonContext& context) const {
  std::vector<const ObjectAlternative*> ways;
  for (const JsonConfiguration& one : context.frame->configurations) {
    ways.push_back(&object_of(*context.frame, one));
  }
  return NameKinds(ways, grammar_.strings);
}

JsonContextPtr JsonFrames::begin_value_of_kind(const JsonContext& context,
                                               const NameKinds::Goals& goals,
                                               RestsBehind& known) const {
  const JsonFrame& frame = *context.frame;
  const auto goals_of_way = [&](size_t way) { return goals[way]; };
  const auto rest = [&](size_t way, const JsonConfiguration& with, uint32_t witnesses) {
    return rest_behind_new(frame, way, with, witnesses, known).bytes;
  };
  return begin_member(context, frame.names, goals_of_way, rest);
}

void JsonFrames::add_names(const JsonFrame& frame, size_t way, RestsBehind& known,
                           JsonKeys& keys) const {
  const JsonConfiguration& of = frame.configurations[way];
  const ObjectAlternative& object = object_of(frame, of);
  if (frame.count >= object.max_properties) return;
  const JsonCompletion::ObjectFacts& facts =
      completion_.facts(frame.goal_of(of)).objects[of.alternative];
  const uint32_t outer = frame.outer(of);
  // Bytes from behind the value of a member with that name, whatever witness it is, to the end of
  // the text, at most.
  const auto costs_behind_value = [&](const std::string& name, size_t num_masks) {
    std::vector<uint32_t> costs(num_masks, kNever);
    const bool is_listed = object.find(name) != nullptr;
    for (uint32_t mask = 0; mask < num_masks; ++mask) {
      JsonConfiguration with = of;
      if (!counts(frame, with, mask)) continue;
      // A simple object needs what it needed before, or less.
      const bool is_deep = frame.depth > kMaxFreeDepth;
      uint32_t rest = of.rest;
      if (!facts.is_simple || is_deep) {
        rest = is_listed ? rest_behind(frame, way, with, mask, name, known)
                         : rest_with_name(frame, with, name);
      }
      if (is_deep && rest >= of.rest) continue;
      costs[mask] = JsonCompletion::sum(rest, outer);
    }
    return costs;
  };
  // The same from behind the name, with the shortest value.
  const auto cost_with_value = [&](const std::vector<uint32_t>& behind, const ChildGoals& goals) {
    uint32_t best = kNever;
    for (uint32_t mask = 0; mask < goals.size(); ++mask) {
      if (completion_.cost(goals[mask]) == kNever) continue;
      best = std::min(best, JsonCompletion::sum(behind[mask], completion_.cost(goals[mask]) + 2));
    }
    return best;
  };
  const auto cost_behind = [&](const std::string& name, const ChildGoals& goals) {
    return cost_with_value(costs_behind_value(name, goals.size()), goals);
  };
  for (size_t i = 0; i < object.names.size(); ++i) {
    const ObjectAlternative::Name& name = object.names[i];
    if (frame.names.contains(name.name)) continue;
    const uint32_t cost = cost_behind(name.name, name.goals);
    if (cost == kNever) continue;
    const std::string_view spelled = std::string_view(facts.spelled[i]).substr(1);
    keys.listed.push_back(
        {spelled, JsonCompletion::sum(cost, static_cast<uint32_t>(spelled.size()))});
  }
  if (!facts.any_others && !facts.others) return;
  if (!facts.is_simple) {
    // Names that have to come though they are not listed.
    std::vector<JsonCompletion::Part> parts;
    rest_of(frame, of, frame.count, frame.names, 1, &parts);
    for (const JsonCompletion::Part& part : parts) {
      if (object.find(part.name) != nullptr) continue;
      const uint32_t cost = cost_behind(part.name, *completion_.goals_of(object, part.name));
      if (cost == kNever) continue;
      keys.own_spelled.push_back(to_json_string(part.name));
      const std::string_view spelled = std::string_view(keys.own_spelled.back()).substr(1);
      keys.listed.push_back(
          {spelled, JsonCompletion::sum(cost, static_cast<uint32_t>(spelled.size()))});
    }
  }
  const auto other = completion_.another_member(object, facts, frame.names, 0);
  if (!other) return;
  const ChildGoals& goals = *completion_.goals_of(object, other->name);
  const std::vector<uint32_t> behind = costs_behind_value(other->name, goals.size());
  if (cost_with_value(behind, goals) == kNever) return;
  // A name that has begun may become one of those whose shortest values are the longest.
  uint32_t cost = 0;
  for (const auto& [patterns, values] : object.others) {
    const uint32_t of_these = cost_with_value(behind, values);
    if (of_these != kNever) cost = std::max(cost, of_these);
  }
  keys.other_cost = std::max(keys.other_cost, JsonCompletion::sum(cost, 4));
  if (facts.any_others) {
    keys.any = true;
  } else if (keys.others.size() < kMaxSlots) {
    keys.others.push_back({static_cast<uint32_t>(keys.others.size()), facts.others});
  }
}

void JsonFrames::add_special_names(const JsonFrame& frame, JsonKeys& keys) const {
  frame.names.for_each([&](std::string_view name) { keys.old.push_back(name); });
  std::vector<const ObjectAlternative*> seen;
  for (const JsonConfiguration& one : frame.configurations) {
    const ObjectAlternative& object = object_of(frame, one);
    if (std::ranges::find(seen, &object) != seen.end()) continue;
    seen.push_back(&object);
    for (const ObjectAlternative::Name& name : object.names) keys.old.emplace_back(name.name);
    for (const auto& dependent : object.dependent_required) {
      keys.with_dependents.emplace_back(dependent.first);
    }
  }
  for (std::vector<std::string_view>* names : {&keys.old, &keys.with_dependents}) {
    std::ranges::sort(*names);
    names->erase(std::unique(names->begin(), names->end()), names->end());
  }
}

JsonContextPtr JsonFrames::begin_name(const JsonContext& context, RestsBehind& known) const {
  auto keys = std::make_shared<JsonKeys>();
  for (size_t way = 0; way < context.frame->configurations.size(); ++way) {
    add_names(*context.frame, way, known, *keys);
  }
  std::ranges::sort(keys->listed, {},
                    [](const JsonKeys::Listed& one) { return std::pair(one.spelled, one.cost); });
  const auto same =
      std::unique(keys->listed.begin(), keys->listed.end(),
                  [](const auto& a, const auto& b) { return a.spelled == b.spelled; });
  keys->listed.erase(same, keys->listed.end());
  if (keys->listed.empty() && !keys->any && keys->others.empty()) return nullptr;
  add_special_names(*context.frame, *keys);
  auto inside = std::make_shared<JsonContext>(context);
  inside->keys = std::move(keys);
  return inside;
}

std::optional<std::string> JsonFrames::another_name(const JsonContext& context,
                                                    const std::string& prefix) const {
  const JsonFrame& frame = *context.frame;
  for (const JsonConfiguration& one : frame.configurations) {
    const auto& facts = completion_.facts(frame.goal_of(one)).objects[one.alternative];
    const auto found =
        completion_.another_member(object_of(frame, one), facts, frame.names, 0, prefix);
    if (found && begin_value_of(context, found->name) != nullptr) return found->name;
  }
  return std::nullopt;
}

}  // namespace quire::grammar
