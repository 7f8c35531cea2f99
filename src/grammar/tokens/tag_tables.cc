#include "grammar/tokens/tag_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "grammar/tokens/trigger_dfa.h"
#include "quire/error.h"

namespace quire::grammar {
namespace {

constexpr size_t kMostTriggerBytes = 4096;
constexpr size_t kMostTagEndingBytes = size_t{1} << 20;

}  // namespace

TagTables::TagTables(TagOptions options, Budget& budget)
    : options_(std::move(options)), utf8_(utf8_dfa(budget)) {
  utf8_endings_ = std::make_unique<DfaEndings>(*utf8_, budget);
  check(budget);
  for (size_t i = 0; i < options_.tags.size(); ++i) {
    budget.step();
    tails_.push_back(options_.tags[i].inner->begin()->ending() + options_.tags[i].end);
    budget.take(tails_.back().size());
    add_begin(static_cast<int32_t>(i), budget);
  }
  find_best_tags();
  if (options_.triggers.empty()) {
    one_more_ = options_.separator;
    append_rest_of_tag(0, one_more_);
  } else {
    make_free_text(budget);
    append_free_text_and_tag(0, one_more_);
  }
  if (bytes_behind_tags(0) > kMostTagEndingBytes) {
    throw Error(fmt::format("{} tags are {} bytes at least; at most {} are supported",
                            options_.min_tags, bytes_behind_tags(0), kMostTagEndingBytes));
  }
}

void TagTables::check(Budget& budget) const {
  if (options_.tags.empty()) throw Error("there are no tags");
  if (options_.max_tags == 0) throw Error("at most 0 tags leave nothing to generate");
  if (options_.min_tags > options_.max_tags) {
    throw Error(
        fmt::format("at least {} tags and at most {}", options_.min_tags, options_.max_tags));
  }
  const auto check_text = [&](std::string_view what, const std::string& text) {
    if (!utf8_->matches(text)) throw Error(fmt::format("the {} is not UTF-8", what));
  };
  check_text("separator", options_.separator);
  size_t trigger_bytes = 0;
  for (const std::string& trigger : options_.triggers) {
    check_text("trigger", trigger);
    trigger_bytes += trigger.size();
    if (trigger.empty()) throw Error("a trigger is empty");
    for (const std::string& other : options_.triggers) {
      budget.step();
      const size_t at = trigger.find(other, 1);
      if (at == std::string::npos) continue;
      throw Error(fmt::format("the trigger \"{}\" can never be complete: it contains \"{}\"",
                              trigger, other));
    }
    if (std::ranges::none_of(options_.tags,
                             [&](const Tag& tag) { return tag.begin.starts_with(trigger); })) {
      throw Error(fmt::format("no tag begins with the trigger \"{}\"", trigger));
    }
  }
  if (trigger_bytes > kMostTriggerBytes) {
    throw Error(fmt::format("triggers of {} bytes; at most {} are taken", trigger_bytes,
                            kMostTriggerBytes));
  }
  for (const Tag& tag : options_.tags) {
    budget.step();
    check_text("begin of a tag", tag.begin);
    check_text("end of a tag", tag.end);
    if (tag.begin.empty() && tag.inner->begin()->can_end()) throw Error("a tag can be empty");
    const bool has_trigger = std::ranges::any_of(
        options_.triggers,
        [&](const std::string& trigger) { return tag.begin.starts_with(trigger); });
    if (!options_.triggers.empty() && !has_trigger) {
      throw Error(fmt::format("the tag \"{}\" begins with no trigger", tag.begin));
    }
  }
}

int32_t TagTables::step(int32_t at, uint8_t byte) const {
  for (const auto& [of, child] : node(at).children) {
    if (of == byte) return child;
  }
  return -1;
}

void TagTables::add_begin(int32_t tag_number, Budget& budget) {
  int32_t at = 0;
  for (const char c : tag(tag_number).begin) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = step(at, byte);
    if (next < 0) {
      budget.take(sizeof(Node) + sizeof(int64_t));
      next = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(at)].children.emplace_back(byte, next);
      const uint32_t depth = node(at).depth + 1;
      nodes_.emplace_back().depth = depth;
    }
    at = next;
  }
  nodes_[static_cast<size_t>(at)].complete.push_back(tag_number);
}

void TagTables::find_best_tags() {
  // Children come behind their parents.
  for (size_t i = nodes_.size(); i-- > 0;) {
    Node& at = nodes_[i];
    for (const int32_t tag_number : at.complete) {
      if (tail_bytes(tag_number) >= at.best_bytes) continue;
      at.best_bytes = tail_bytes(tag_number);
      at.best_tag = tag_number;
    }
    for (const auto& [byte, child] : at.children) {
      if (node(child).best_bytes + 1 >= at.best_bytes) continue;
      at.best_bytes = node(child).best_bytes + 1;
      at.best_tag = node(child).best_tag;
    }
  }
}

int32_t TagTables::node_of(const std::string& trigger) const {
  int32_t at = 0;
  for (const char c : trigger) at = step(at, static_cast<uint8_t>(c));
  return at;
}

void TagTables::make_free_text(Budget& budget) {
  TriggerDfa made = make_trigger_dfa(options_.triggers, *utf8_, budget);
  free_ = std::move(made.dfa);
  utf8_state_ = std::move(made.utf8_state);
  for (const int32_t trigger : made.trigger) {
    node_behind_.push_back(trigger < 0 ? -1
                                       : node_of(options_.triggers[static_cast<size_t>(trigger)]));
  }
  find_tag_ends();
}

// From the shortest way upward, as Dijkstra.
void TagTables::find_tag_ends() {
  const Dfa::Table& table = free_->table();
  const auto num_states = static_cast<size_t>(free_->num_states());
  const auto num_classes = static_cast<size_t>(table.num_classes);
  std::vector<uint8_t> byte_of(num_classes);
  for (size_t byte = 256; byte-- > 0;) byte_of[table.classes[byte]] = static_cast<uint8_t>(byte);
  std::vector<std::vector<std::pair<size_t, uint8_t>>> before(num_states);
  std::multimap<size_t, size_t> open;  // bytes to a state
  to_tag_end_.assign(num_states, SIZE_MAX);
  byte_to_tag_end_.assign(num_states, 0);
  for (size_t state = 0; state < num_states; ++state) {
    for (size_t of = 0; of < num_classes; ++of) {
      const int32_t next = table.next[state * num_classes + of];
      if (next >= 0) before[static_cast<size_t>(next)].emplace_back(state, byte_of[of]);
    }
    if (node_behind_[state] < 0) continue;
    to_tag_end_[state] = node(node_behind_[state]).best_bytes;
    open.emplace(to_tag_end_[state], state);
  }
  while (!open.empty()) {
    const auto [bytes, state] = *open.begin();
    open.erase(open.begin());
    if (bytes > to_tag_end_[state]) continue;
    most_to_tag_end_ = std::max(most_to_tag_end_, bytes);
    for (const auto& [from, byte] : before[state]) {
      if (to_tag_end_[from] <= bytes + 1) continue;
      to_tag_end_[from] = bytes + 1;
      byte_to_tag_end_[from] = byte;
      open.emplace(bytes + 1, from);
    }
  }
}

std::string TagTables::text_behind_tags(uint32_t count) const {
  std::string text;
  for (; count < options_.min_tags; ++count) text += one_more_;
  return text;
}

void TagTables::append_broken_bytes(int32_t state, std::string& text) const {
  utf8_endings_->append(utf8_state_[static_cast<size_t>(state)], text);
}

void TagTables::append_free_text_and_tag(int32_t state, std::string& text) const {
  while (node_behind(state) < 0) {
    const uint8_t byte = byte_to_tag_end_[static_cast<size_t>(state)];
    text += static_cast<char>(byte);
    state = free_->step(state, byte);
  }
  append_rest_of_tag(node_behind(state), text);
}

void TagTables::append_rest_of_tag(int32_t at, std::string& text) const {
  const int32_t best = node(at).best_tag;
  text += tag(best).begin.substr(node(at).depth);
  text += tails_[static_cast<size_t>(best)];
}

TagTables::NodesPtr TagTables::nodes_of_byte(const TokenTrie& trie, int byte) const {
  const std::scoped_lock lock(mutex_);
  if (trie_ != trie.id()) nodes_of_byte_.clear();
  trie_ = trie.id();
  NodesPtr& kept = nodes_of_byte_[byte];
  if (kept != nullptr) return kept;
  std::vector<uint32_t> found;
  const auto nodes = trie.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].depth < 2 || (byte != kAnyByte && nodes[i].byte != byte)) continue;
    found.push_back(static_cast<uint32_t>(i));
  }
  kept = std::make_shared<const std::vector<uint32_t>>(std::move(found));
  return kept;
}

}  // namespace quire::grammar
