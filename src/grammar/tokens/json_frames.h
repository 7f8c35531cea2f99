#pragma once
// Where generated JSON is: the open arrays and objects, and what each of them still may become.
//
// A value is written once for all goals that are asked of it, its slots. An array or object is a
// frame of configurations, as in json_matcher.h; here each also knows how many bytes end it, and
// those that cannot be ended are dropped, so that some way to the end is always left.
//
// Thread safety: contexts and frames are immutable once made.
#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/json_grammar.h"
#include "grammar/tokens/json_completion.h"
#include "grammar/tokens/name_kinds.h"

namespace quire::grammar {

struct JsonFrame;
struct JsonKeys;

struct JsonSlot {
  int goal = kNoGoal;
  uint32_t outer = 0;  // bytes from behind the value to the end of the text
};

// A place around or before a value.
struct JsonContext {
  std::vector<JsonSlot> slots;             // of the value that comes or is being written
  std::shared_ptr<const JsonFrame> frame;  // around it; null: none
  std::shared_ptr<const JsonKeys> keys;    // where a name is being written
};
using JsonContextPtr = std::shared_ptr<const JsonContext>;

struct JsonConfiguration {
  uint32_t slot = 0;  // of the array or object
  uint32_t alternative = 0;
  JsonCompletion::Counts witnessed{};
  uint32_t rest = 0;  // bytes that end the array or object; while a child is written: behind it
  // Of the item or member that is being written.
  uint32_t child_slot = 0;
  uint32_t child_witness = 0;
};

struct JsonFrame {
  bool is_object = false;
  uint32_t depth = 1;
  JsonContextPtr opened_in;
  std::vector<JsonConfiguration> configurations;
  uint64_t count = 0;  // of whole items or members
  NameList names;
  uint32_t member_cost = 0;  // behind an object's comma: bytes to the end
  // Of an array without repeats: its whole items, as generated_item() has them, and where in the
  // text the item begins that is being written. Where any way to read an array forbids repeats,
  // none are written.
  bool is_unique = false;
  bool needs_text = false;  // it is one, or is within one
  uint32_t num_unique = 0;  // of itself and those around it
  NameList items;
  NameList strings;  // in these items
  size_t item_begin = 0;

  int goal_of(const JsonConfiguration& of) const { return opened_in->slots[of.slot].goal; }
  uint32_t outer(const JsonConfiguration& of) const { return opened_in->slots[of.slot].outer; }
};

// The names that a member may have.
struct JsonKeys {
  struct Listed {
    std::string_view spelled;  // behind the opening quote, with the closing one
    uint32_t cost = 0;         // bytes from behind the opening quote to the end, at most
  };
  std::vector<Listed> listed;           // sorted
  std::deque<std::string> own_spelled;  // of those that their object does not list
  bool any = false;                     // any other name
  std::vector<StringTarget> others;
  uint32_t other_cost = 0;  // bytes from behind the name, with its quote, to the end, at most
  // Sorted, each once: names that members have or that an object lists, whether they may come or
  // not, and names on which other members depend.
  std::vector<std::string_view> old;
  std::vector<std::string_view> with_dependents;
};

// Calls visit(name) for those of sorted names that begin with `written`.
template <typename Visit>
void for_each_begun(std::span<const std::string_view> names, std::string_view written,
                    const Visit& visit) {
  for (auto at = std::ranges::lower_bound(names, written);
       at != names.end() && at->starts_with(written); ++at) {
    visit(*at);
  }
}

class JsonFrames {
 public:
  static constexpr size_t kMaxSlots = 64;
  // Deeper than this only what has to come is written, so that nesting stays within what is read.
  static constexpr uint32_t kMaxFreeDepth = 300;

  JsonFrames(const JsonGrammar& grammar, const JsonCompletion& completion)
      : grammar_(grammar), completion_(completion) {}

  // Before the value that is the whole text.
  JsonContextPtr root() const;
  // Each is null where that cannot come.
  JsonContextPtr begin_container(const JsonContextPtr& context, bool is_object) const;
  // An item that begins at `place` of the text.
  JsonContextPtr begin_item(const JsonContext& context, size_t place) const;
  // Behind an object's comma: keeps what can have another member.
  JsonContextPtr next_member(const JsonContext& context) const;
  // What comes behind a member of a new name, for each way to read the object: it depends on the
  // name only where that is one of the names that come, or where others depend on it.
  struct RestBehind {
    uint32_t bytes = 0;
    std::vector<std::string> names;  // sorted
  };
  using RestsBehind = std::map<std::pair<size_t, uint32_t>, RestBehind>;  // by way and witnesses
  // `known` has those of `context`, and more of them then.
  JsonContextPtr begin_name(const JsonContext& context, RestsBehind& known) const;
  JsonContextPtr begin_value_of(const JsonContext& context, std::string_view name) const;
  JsonContextPtr begin_value_of(const JsonContext& context, std::string_view name,
                                RestsBehind& known) const;
  // The same for any name of a kind, but for those that are used or listed, that come otherwise
  // (RestBehind::names), or on which others depend. The name is not among the used ones then.
  JsonContextPtr begin_value_of_kind(const JsonContext& context, const NameKinds::Goals& goals,
                                     RestsBehind& known) const;
  NameKinds kinds_of_names(const JsonContext& context) const;
  // Behind a value that fulfils the goals of these slots (bits), at the end of `text`; behind the
  // whole value, without a frame. `is_new`: an item that may not be repeated is known to be no
  // repeat, and is not remembered.
  JsonContextPtr end_value(const JsonContext& context, uint64_t results, std::string_view text,
                           bool is_new = false) const;
  // The slots of an array or object that may end here, as bits.
  uint64_t container_results(const JsonContext& context) const;

  // A member whose name is not listed and begins with `prefix`; nothing if none is found.
  std::optional<std::string> another_name(const JsonContext& context,
                                          const std::string& prefix) const;

  // Bytes to the end from: before a value; behind an item or member, or the opening bracket.
  uint32_t value_cost(const JsonContext& context) const;
  uint32_t container_cost(const JsonContext& context) const;
  // These append to the text so far, up to the end of the item or member of `stop` that is being
  // written, or of all where that is null.
  void append_value_ending(const JsonContext& context, std::string& text,
                           const JsonFrame* stop) const;
  void append_container_ending(const JsonContext& context, bool is_first, std::string& text,
                               const JsonFrame* stop) const;
  void append_member_ending(const JsonContext& context, std::string& text,
                            const JsonFrame* stop) const;
  // What follows a value of one slot.
  void append_outer(const JsonContext& context, uint32_t slot, std::string& text,
                    const JsonFrame* stop) const;

 private:
  static constexpr uint32_t kNever = JsonCompletion::kNever;

  const ArrayAlternative& array_of(const JsonFrame& frame, const JsonConfiguration& of) const;
  const ObjectAlternative& object_of(const JsonFrame& frame, const JsonConfiguration& of) const;
  uint32_t rest_of(const JsonFrame& frame, const JsonConfiguration& of, uint64_t count,
                   const NameList& names, uint64_t more,
                   std::vector<JsonCompletion::Part>* parts) const;
  // Adds the ways in which a configuration goes on with a child of one of `goals`. rest(with, mask)
  // says how many bytes end the array or object behind the child.
  template <typename Rest>
  void add_children(const JsonFrame& frame, const JsonConfiguration& from, const ChildGoals& goals,
                    const Rest& rest, JsonContext& context, JsonFrame& next) const;
  // Whether other members have to come where one of that name does.
  static bool has_dependents(const ObjectAlternative& object, std::string_view name);
  // Behind a member of a name that changes nothing else.
  const RestBehind& rest_behind_new(const JsonFrame& frame, size_t way,
                                    const JsonConfiguration& with, uint32_t witnesses,
                                    RestsBehind& known) const;
  uint32_t rest_behind(const JsonFrame& frame, size_t way, const JsonConfiguration& with,
                       uint32_t witnesses, std::string_view name, RestsBehind& known) const;
  uint32_t rest_with_name(const JsonFrame& frame, const JsonConfiguration& with,
                          std::string_view name) const;
  // Before the value of a member: goals_of_way(way) may be null, rest(way, with, witnesses) is what
  // comes behind the value. `names`: those that are used then.
  template <typename Goals, typename Rest>
  JsonContextPtr begin_member(const JsonContext& context, NameList names, const Goals& goals_of_way,
                              const Rest& rest) const;
  bool counts(const JsonFrame& frame, JsonConfiguration& configuration, uint32_t witnesses) const;
  void add_names(const JsonFrame& frame, size_t way, RestsBehind& known, JsonKeys& keys) const;
  void add_special_names(const JsonFrame& frame, JsonKeys& keys) const;
  static void keep_the_best(JsonFrame& frame);
  void keep_one_kind(JsonFrame& frame) const;
  // The items that still have to come, beside those of the text.
  std::vector<JsonCompletion::Part> parts_of(const JsonFrame& frame, const JsonConfiguration& of,
                                             uint64_t count, uint64_t more,
                                             const NameList& items) const;

  const JsonGrammar& grammar_;
  const JsonCompletion& completion_;
};

template <typename Rest>
void JsonFrames::add_children(const JsonFrame& frame, const JsonConfiguration& from,
                              const ChildGoals& goals, const Rest& rest, JsonContext& context,
                              JsonFrame& next) const {
  for (uint32_t mask = 0; mask < goals.size(); ++mask) {
    if (completion_.cost(goals[mask]) == kNever) continue;
    JsonConfiguration with = from;
    if (!counts(frame, with, mask)) continue;
    with.rest = rest(with, mask);
    if (frame.depth > kMaxFreeDepth && with.rest >= from.rest) continue;
    const uint32_t outer = JsonCompletion::sum(with.rest, frame.outer(with));
    if (JsonCompletion::sum(completion_.cost(goals[mask]), outer) == kNever) continue;
    auto slot = std::ranges::find(context.slots, goals[mask], &JsonSlot::goal);
    if (slot == context.slots.end()) {
      if (context.slots.size() == kMaxSlots) continue;
      context.slots.push_back({goals[mask], outer});
      slot = context.slots.end() - 1;
    }
    slot->outer = std::min(slot->outer, outer);
    with.child_slot = static_cast<uint32_t>(slot - context.slots.begin());
    with.child_witness = mask;
    next.configurations.push_back(with);
  }
}

}  // namespace quire::grammar
