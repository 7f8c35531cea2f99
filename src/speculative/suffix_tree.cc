#include "speculative/suffix_tree.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "speculative/hash.h"

namespace quire::speculative_internal {
namespace {

constexpr int32_t kTextEnd = -1;
constexpr uint32_t kGrown = std::numeric_limits<uint32_t>::max();
constexpr size_t kFirstTreeSlots = 256;  // a power of two, as every number of slots

}  // namespace

SuffixTree::SuffixTree(size_t depth)
    : depth_(depth), seed_(hash_seed()), nodes_(1), slots_(kFirstTreeSlots) {
  check(depth >= 2, "a path has a match and a draft");
  nodes_[0].goes_on = kGrown;
}

void SuffixTree::append(int32_t token_id) {
  check(token_id >= 0, "a token has an id");
  text_.push_back(token_id);
  const auto behind = static_cast<uint32_t>(text_.size());
  std::vector<NodeId> longer;
  longer.reserve(matches_.size() + 1);
  for (size_t length = 0; length <= matches_.size() && length < depth_; ++length) {
    const NodeId node = length == 0 ? 0 : matches_[length - 1];
    grow_leaf(node);
    const NodeId child = find_child(node, token_id);
    if (child != 0) {
      count_child(node, child);
      longer.push_back(child);
    } else {
      add_child(node, token_id, behind);
    }
  }
  matches_ = std::move(longer);
}

void SuffixTree::end_text() {
  text_.push_back(kTextEnd);
  matches_.clear();
}

size_t SuffixTree::bytes() const {
  return text_.capacity() * sizeof(int32_t) + nodes_.capacity() * sizeof(Node) +
         slots_.capacity() * sizeof(NodeId);
}

SuffixDrafts SuffixTree::after_text(const SuffixLimits& limits) const {
  SuffixDrafts best;
  for (size_t length = matches_.size(); length > 0; --length) {
    // The suffix itself is one of the occurrences, and nothing follows it yet.
    SuffixDrafts drafts = follow({.node = matches_[length - 1]}, 1, length, limits);
    if (drafts.score > best.score) best = std::move(drafts);
  }
  return best;
}

SuffixDrafts SuffixTree::after(std::span<const int32_t> token_ids,
                               const SuffixLimits& limits) const {
  SuffixDrafts best;
  for (size_t length = std::min(depth_ - 1, token_ids.size()); length > 0; --length) {
    Cursor cursor;
    const auto suffix = token_ids.last(length);
    const bool found = std::ranges::all_of(
        suffix, [this, &cursor](int32_t token_id) { return advance(cursor, token_id); });
    if (!found) continue;
    SuffixDrafts drafts = follow(cursor, 0, length, limits);
    if (drafts.score > best.score) best = std::move(drafts);
  }
  return best;
}

SuffixDrafts SuffixTree::follow(Cursor cursor, uint32_t num_ends, size_t match_length,
                                const SuffixLimits& limits) const {
  const double by_length = limits.factor * static_cast<double>(match_length);
  const size_t room = std::min(limits.most, depth_ - std::min(depth_, match_length));
  const auto most = static_cast<size_t>(std::min(by_length, static_cast<double>(room)));
  SuffixDrafts drafts;
  double probability = 1;
  Step step;
  while (drafts.token_ids.size() < most && best_step(cursor, num_ends, step)) {
    probability *= step.probability;
    if (probability < limits.min_token_prob) break;
    drafts.token_ids.push_back(step.token_id);
    drafts.score += probability;
    cursor = step.cursor;
    num_ends = 0;
  }
  return drafts;
}

bool SuffixTree::best_step(const Cursor& cursor, uint32_t num_ends, Step& step) const {
  const Node& node = nodes_[cursor.node];
  if (cursor.in_text || node.goes_on != kGrown) {
    const uint32_t place = cursor.in_text ? cursor.place : node.goes_on;
    if (!has_text_at(place)) return false;
    const uint32_t count = cursor.in_text ? 1 : node.count - num_ends;
    step = {.token_id = text_[place],
            .probability = 1.0 / count,
            .cursor = {.place = place + 1, .in_text = true}};
    return true;
  }
  if (node.best_child == 0) return false;
  const Node& child = nodes_[node.best_child];
  step = {.token_id = child.token_id,
          .probability = static_cast<double>(child.count) / (node.count - num_ends),
          .cursor = {.node = node.best_child}};
  return true;
}

bool SuffixTree::advance(Cursor& cursor, int32_t token_id) const {
  const Node& node = nodes_[cursor.node];
  if (cursor.in_text || node.goes_on != kGrown) {
    const uint32_t place = cursor.in_text ? cursor.place : node.goes_on;
    cursor = {.place = place + 1, .in_text = true};
    return has_text_at(place) && text_[place] == token_id;
  }
  cursor.node = find_child(cursor.node, token_id);
  return cursor.node != 0;
}

bool SuffixTree::has_text_at(size_t place) const {
  return place < text_.size() && text_[place] != kTextEnd;
}

// The suffix that made the leaf goes on by a node, so that another can be told from it.
void SuffixTree::grow_leaf(NodeId node) {
  const uint32_t place = std::exchange(nodes_[node].goes_on, kGrown);
  if (place == kGrown || !has_text_at(place)) return;
  add_child(node, text_[place], place + 1);
}

SuffixTree::NodeId SuffixTree::find_child(NodeId parent, int32_t token_id) const {
  return slots_[slot_of(parent, token_id)];
}

SuffixTree::NodeId SuffixTree::add_child(NodeId parent, int32_t token_id, uint32_t goes_on) {
  if (3 * nodes_.size() > 2 * slots_.size()) grow_slots();
  const auto child = static_cast<NodeId>(nodes_.size());
  slots_[slot_of(parent, token_id)] = child;
  nodes_.push_back({.parent = parent, .token_id = token_id, .goes_on = goes_on});
  count_child(parent, child);
  return child;
}

void SuffixTree::count_child(NodeId parent, NodeId child) {
  const uint32_t count = ++nodes_[child].count;
  NodeId& best = nodes_[parent].best_child;
  if (best == 0 || count >= nodes_[best].count) best = child;
}

void SuffixTree::grow_slots() {
  slots_.assign(2 * slots_.size(), 0);
  for (size_t i = 1; i < nodes_.size(); ++i) {
    slots_[slot_of(nodes_[i].parent, nodes_[i].token_id)] = static_cast<NodeId>(i);
  }
}

size_t SuffixTree::slot_of(NodeId parent, int32_t token_id) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t hash = mix_in(mix_in(seed_, parent), static_cast<uint32_t>(token_id));
  for (size_t slot = hash & mask;; slot = (slot + 1) & mask) {
    const NodeId found = slots_[slot];
    if (found == 0) return slot;
    if (nodes_[found].parent == parent && nodes_[found].token_id == token_id) return slot;
  }
}

}  // namespace quire::speculative_internal
