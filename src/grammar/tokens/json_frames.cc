#include "grammar/tokens/json_frames.h"

#include <algorithm>

#include "grammar/string_reader.h"

namespace quire::grammar {
namespace {

// Calls visit(text) for the strings and names of some JSON, decoded.
template <typename Visit>
void for_each_string(std::string_view json, const Visit& visit) {
  StringReader reader;
  std::string text;
  bool is_inside = false;
  for (const char c : json) {
    if (!is_inside) {
      is_inside = c == '"';
      reader.begin();
      text.clear();
    } else if (reader.take(static_cast<uint8_t>(c), text) == StringReader::Result::kEnd) {
      visit(std::string_view(text));
      is_inside = false;
    }
  }
}

// More ways to read one array or object are dropped, the longest to end first.
constexpr size_t kMaxConfigurations = 64;

}  // namespace

const ArrayAlternative& JsonFrames::array_of(const JsonFrame& frame,
                                             const JsonConfiguration& of) const {
  return grammar_.goals[static_cast<size_t>(frame.goal_of(of))].arrays[of.alternative];
}

const ObjectAlternative& JsonFrames::object_of(const JsonFrame& frame,
                                               const JsonConfiguration& of) const {
  return grammar_.goals[static_cast<size_t>(frame.goal_of(of))].objects[of.alternative];
}

JsonContextPtr JsonFrames::root() const {
  auto context = std::make_shared<JsonContext>();
  context->slots.push_back({grammar_.root, 0});
  return context;
}

uint32_t JsonFrames::rest_of(const JsonFrame& frame, const JsonConfiguration& of, uint64_t count,
                             const NameList& names, uint64_t more,
                             std::vector<JsonCompletion::Part>* parts) const {
  const int goal = frame.goal_of(of);
  return frame.is_object
             ? completion_.object_cost(goal, of.alternative, count, names, of.witnessed, more,
                                       parts)
             : completion_.array_cost(goal, of.alternative, count, of.witnessed, more, parts);
}

JsonContextPtr JsonFrames::begin_container(const JsonContextPtr& context, bool is_object) const {
  JsonFrame frame;
  frame.is_object = is_object;
  frame.depth = context->frame == nullptr ? 1 : context->frame->depth + 1;
  const bool is_deep = frame.depth > kMaxFreeDepth;
  frame.opened_in = context;
  for (size_t slot = 0; slot < context->slots.size(); ++slot) {
    const JsonGoal& goal = grammar_.goals[static_cast<size_t>(context->slots[slot].goal)];
    const size_t count = is_object ? goal.objects.size() : goal.arrays.size();
    for (size_t i = 0; i < count; ++i) {
      JsonConfiguration configuration;
      configuration.slot = static_cast<uint32_t>(slot);
      configuration.alternative = static_cast<uint32_t>(i);
      configuration.rest = rest_of(frame, configuration, 0, {}, 0, nullptr);
      const bool can_end =
          JsonCompletion::sum(configuration.rest, context->slots[slot].outer) != kNever;
      const bool is_shortest =
          JsonCompletion::sum(1, configuration.rest) == completion_.cost(context->slots[slot].goal);
      if (!can_end || (is_deep && !is_shortest)) continue;
      frame.configurations.push_back(configuration);
      frame.is_unique |=
          !is_object && goal.arrays[i].repeats == ArrayAlternative::Repeats::kForbidden;
    }
  }
  if (frame.is_unique) keep_one_kind(frame);
  frame.num_unique = (context->frame == nullptr ? 0 : context->frame->num_unique) + frame.is_unique;
  frame.needs_text = frame.num_unique > 0;
  if (frame.configurations.empty()) return nullptr;
  keep_the_best(frame);
  auto inside = std::make_shared<JsonContext>();
  inside->frame = std::make_shared<const JsonFrame>(std::move(frame));
  return inside;
}

// Ways to read an array that forbid repeats do not go with those that may need them: the kind of
// the shortest ending is kept, which may have been promised. Of several it is the first, as endings
// are made (JsonCompletion::append_value).
void JsonFrames::keep_one_kind(JsonFrame& frame) const {
  const auto facts_of = [&](const JsonConfiguration& one) -> const JsonCompletion::ArrayFacts& {
    return completion_.facts(frame.goal_of(one)).arrays[one.alternative];
  };
  const auto shortest =
      std::ranges::min_element(frame.configurations, {}, [&](const JsonConfiguration& one) {
        return JsonCompletion::sum(one.rest, frame.outer(one));
      });
  frame.is_unique = facts_of(*shortest).can_be_unique;
  std::erase_if(frame.configurations, [&](const JsonConfiguration& one) {
    return frame.is_unique ? !facts_of(one).can_be_unique : facts_of(one).is_unique;
  });
}

bool JsonFrames::counts(const JsonFrame& frame, JsonConfiguration& configuration,
                        uint32_t witnesses) const {
  for (size_t w = 0; w < kMaxWitnesses; ++w) {
    if ((witnesses >> w & 1) == 0) continue;
    uint32_t& witnessed = configuration.witnessed[w];
    uint64_t most = 1;
    if (!frame.is_object) {
      const ArrayAlternative::Witness& witness = array_of(frame, configuration).witnesses[w];
      // Beyond what is needed, witnesses only count where there is a limit.
      most = witness.max == UINT64_MAX ? witness.min : witness.max;
    }
    if (witnessed >= most) return false;
    ++witnessed;
  }
  return true;
}

JsonContextPtr JsonFrames::begin_item(const JsonContext& context, size_t place) const {
  const JsonFrame& frame = *context.frame;
  JsonContext inside;
  JsonFrame next = frame;
  next.item_begin = place;
  next.configurations.clear();
  for (const JsonConfiguration& configuration : frame.configurations) {
    const ArrayAlternative& array = array_of(frame, configuration);
    if (frame.count >= array.max_items) continue;
    const auto rest = [&](const JsonConfiguration& with, uint32_t) {
      return rest_of(frame, with, frame.count + 1, {}, 0, nullptr);
    };
    add_children(frame, configuration, array.goals_at(frame.count), rest, inside, next);
  }
  if (next.configurations.empty()) return nullptr;
  inside.frame = std::make_shared<const JsonFrame>(std::move(next));
  return std::make_shared<const JsonContext>(std::move(inside));
}

JsonContextPtr JsonFrames::next_member(const JsonContext& context) const {
  const JsonFrame& frame = *context.frame;
  JsonFrame next = frame;
  next.member_cost = kNever;
  std::erase_if(next.configurations, [&](const JsonConfiguration& configuration) {
    if (frame.depth > kMaxFreeDepth && configuration.rest == 1) return true;
    const uint32_t rest = rest_of(frame, configuration, frame.count, frame.names, 1, nullptr);
    const uint32_t cost = JsonCompletion::sum(rest, frame.outer(configuration));
    next.member_cost = std::min(next.member_cost, cost);
    return cost == kNever;
  });
  if (next.configurations.empty()) return nullptr;
  auto inside = std::make_shared<JsonContext>();
  inside->frame = std::make_shared<const JsonFrame>(std::move(next));
  return inside;
}

uint64_t JsonFrames::container_results(const JsonContext& context) const {
  uint64_t results = 0;
  for (const JsonConfiguration& configuration : context.frame->configurations) {
    // Nothing but the bracket.
    if (configuration.rest == 1) results |= uint64_t{1} << configuration.slot;
  }
  return results;
}

void JsonFrames::keep_the_best(JsonFrame& frame) {
  auto& all = frame.configurations;
  const auto key = [](const JsonConfiguration& one) {
    return std::tuple(one.slot, one.alternative, one.witnessed);
  };
  std::ranges::sort(all, {}, key);
  const auto same = std::unique(all.begin(), all.end(),
                                [&](const auto& a, const auto& b) { return key(a) == key(b); });
  all.erase(same, all.end());
  if (all.size() <= kMaxConfigurations) return;
  std::ranges::stable_sort(
      all, {}, [&](const JsonConfiguration& one) { return one.rest + frame.outer(one); });
  all.resize(kMaxConfigurations);
}

JsonContextPtr JsonFrames::end_value(const JsonContext& context, uint64_t results,
                                     std::string_view text, bool is_new) const {
  auto outside = std::make_shared<JsonContext>();
  if (context.frame == nullptr) return outside;
  JsonFrame next = *context.frame;
  ++next.count;
  std::erase_if(next.configurations, [&](const JsonConfiguration& configuration) {
    return (results >> configuration.child_slot & 1) == 0;
  });
  if (next.configurations.empty()) return nullptr;
  keep_the_best(next);
  if (next.is_unique && !is_new) {
    const std::string item = generated_item(text.substr(next.item_begin));
    if (next.items.contains(item)) return nullptr;
    next.items = next.items.with(item);
    for_each_string(item, [&](std::string_view one) {
      if (!next.strings.contains(one)) next.strings = next.strings.with(one);
    });
  }
  outside->frame = std::make_shared<const JsonFrame>(std::move(next));
  return outside;
}

uint32_t JsonFrames::value_cost(const JsonContext& context) const {
  uint32_t best = kNever;
  for (const JsonSlot& slot : context.slots) {
    best = std::min(best, JsonCompletion::sum(completion_.cost(slot.goal), slot.outer));
  }
  return best;
}

uint32_t JsonFrames::container_cost(const JsonContext& context) const {
  uint32_t best = kNever;
  for (const JsonConfiguration& one : context.frame->configurations) {
    best = std::min(best, JsonCompletion::sum(one.rest, context.frame->outer(one)));
  }
  return best;
}

std::vector<JsonCompletion::Part> JsonFrames::parts_of(const JsonFrame& frame,
                                                       const JsonConfiguration& of, uint64_t count,
                                                       uint64_t more, const NameList& items) const {
  std::vector<JsonCompletion::Part> parts;
  rest_of(frame, of, count, frame.names, more, &parts);
  if (frame.is_unique) completion_.make_distinct(frame.goal_of(of), of.alternative, items, parts);
  return parts;
}

void JsonFrames::append_value_ending(const JsonContext& context, std::string& text,
                                     const JsonFrame* stop) const {
  const uint32_t least = value_cost(context);
  for (size_t slot = 0; slot < context.slots.size(); ++slot) {
    const JsonSlot& one = context.slots[slot];
    if (JsonCompletion::sum(completion_.cost(one.goal), one.outer) != least) continue;
    completion_.append_value(one.goal, text);
    return append_outer(context, static_cast<uint32_t>(slot), text, stop);
  }
}

void JsonFrames::append_container_ending(const JsonContext& context, bool is_first,
                                         std::string& text, const JsonFrame* stop) const {
  const JsonFrame& frame = *context.frame;
  const uint32_t least = container_cost(context);
  for (const JsonConfiguration& one : frame.configurations) {
    if (JsonCompletion::sum(one.rest, frame.outer(one)) != least) continue;
    const auto parts = parts_of(frame, one, frame.count, 0, frame.items);
    completion_.append_parts(parts, frame.is_object, is_first, text);
    return append_outer(*frame.opened_in, one.slot, text, stop);
  }
}

void JsonFrames::append_member_ending(const JsonContext& context, std::string& text,
                                      const JsonFrame* stop) const {
  const JsonFrame& frame = *context.frame;
  const uint32_t least = frame.member_cost;
  for (const JsonConfiguration& one : frame.configurations) {
    std::vector<JsonCompletion::Part> parts;
    const uint32_t rest = rest_of(frame, one, frame.count, frame.names, 1, &parts);
    if (JsonCompletion::sum(rest, frame.outer(one)) != least) continue;
    completion_.append_parts(parts, true, true, text);
    return append_outer(*frame.opened_in, one.slot, text, stop);
  }
}

void JsonFrames::append_outer(const JsonContext& context, uint32_t slot, std::string& text,
                              const JsonFrame* stop) const {
  if (context.frame == nullptr || context.frame.get() == stop) return;
  const JsonFrame& frame = *context.frame;
  const JsonConfiguration* best = nullptr;
  for (const JsonConfiguration& one : frame.configurations) {
    if (one.child_slot != slot) continue;
    if (best == nullptr || one.rest + frame.outer(one) < best->rest + frame.outer(*best)) {
      best = &one;
    }
  }
  NameList items = frame.items;
  if (frame.is_unique) items = items.with(generated_item(text.substr(frame.item_begin)));
  const auto parts = parts_of(frame, *best, frame.count + 1, 0, items);
  completion_.append_parts(parts, frame.is_object, false, text);
  append_outer(*frame.opened_in, best->slot, text, stop);
}

}  // namespace quire::grammar
