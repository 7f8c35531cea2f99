#include "scheduler/prefix_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

BlockHash hash_block(BlockHash parent, std::span<const int32_t> token_ids,
                     std::string_view extra_key) {
  const BlockHash of_key = XXH3_64bits_withSeed(extra_key.data(), extra_key.size(), parent);
  return XXH3_64bits_withSeed(token_ids.data(), token_ids.size_bytes(), of_key);
}

PrefixCache::PrefixCache(int block_size, BlockHasher hasher)
    : block_size_(static_cast<size_t>(block_size)), hasher_(std::move(hasher)) {
  check(block_size > 0, "a block holds at least one token");
}

void PrefixCache::extend_hashes(TokenView token_ids, std::string_view extra_key,
                                std::vector<BlockHash>& hashes) const {
  std::vector<int32_t> scratch;
  for (size_t i = hashes.size(); (i + 1) * block_size_ <= token_ids.size(); ++i) {
    const BlockHash parent = i == 0 ? 0 : hashes[i - 1];
    hashes.push_back(
        hasher_(parent, token_ids.slice(i * block_size_, block_size_, scratch), extra_key));
  }
}

std::vector<int32_t> PrefixCache::lookup(TokenView token_ids, std::string_view extra_key,
                                         std::span<const BlockHash> hashes) const {
  check(token_ids.size() >= hashes.size() * block_size_, "hashes are of full blocks");
  std::vector<int32_t> block_ids;
  std::vector<int32_t> scratch;
  NodeId parent = kRoot;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const auto id =
        find(parent, token_ids.slice(i * block_size_, block_size_, scratch), extra_key, hashes[i]);
    if (!id || nodes_.at(*id).block_ids.empty()) break;
    block_ids.push_back(nodes_.at(*id).block_ids.front());
    parent = *id;
  }
  return block_ids;
}

void PrefixCache::insert(int32_t block_id, std::optional<int32_t> parent_block_id,
                         std::span<const int32_t> token_ids, std::string_view extra_key,
                         BlockHash hash) {
  check(token_ids.size() == block_size_, "only full blocks are filed");
  check(!contains(block_id), "a block has one content");
  const NodeId parent = node_of(parent_block_id);
  const std::optional<NodeId> found = find(parent, token_ids, extra_key, hash);
  const NodeId id = found ? *found : next_id_++;
  Node& node = nodes_[id];
  if (!found) {
    node.parent = parent;
    node.hash = hash;
    node.token_ids.assign(token_ids.begin(), token_ids.end());
    if (parent == kRoot) node.extra_key = extra_key;
    index_.emplace(hash, id);
    if (parent != kRoot) ++nodes_.at(parent).num_children;
  }
  node.block_ids.push_back(block_id);
  const auto at = static_cast<size_t>(block_id);
  if (at >= node_of_block_.size()) node_of_block_.resize(at + 1, kRoot);
  node_of_block_[at] = id;
  ++num_blocks_;
}

void PrefixCache::erase(int32_t block_id) {
  NodeId id = node_of(block_id);
  node_of_block_[static_cast<size_t>(block_id)] = kRoot;
  --num_blocks_;
  std::erase(nodes_.at(id).block_ids, block_id);
  // A chain of nodes that were kept only for their descendants goes with the last of these.
  while (id != kRoot) {
    const auto it = nodes_.find(id);
    if (!it->second.block_ids.empty() || it->second.num_children > 0) break;
    const NodeId parent = it->second.parent;
    erase_from_index(id, it->second.hash);
    nodes_.erase(it);
    if (parent != kRoot) --nodes_.at(parent).num_children;
    id = parent;
  }
}

void PrefixCache::check_filed(int32_t block_id, std::optional<int32_t> parent_block_id,
                              std::span<const int32_t> token_ids,
                              std::string_view extra_key) const {
  check(matches(nodes_.at(node_of(block_id)), node_of(parent_block_id), token_ids, extra_key),
        "a cached block holds what it is filed under");
}

void PrefixCache::check_integrity() const {
  check(index_.size() == nodes_.size(), "every node is indexed once");
  std::vector<NodeId> parents;  // of all nodes but roots
  parents.reserve(nodes_.size());
  int64_t num_blocks = 0;
  for (const auto& [id, node] : nodes_) {
    check(find(node.parent, node.token_ids, node.extra_key, node.hash) == id,
          "every node is found by its contents");
    check(!node.block_ids.empty() || node.num_children > 0, "no node is kept for nothing");
    for (const int32_t block_id : node.block_ids) {
      check(node_of(block_id) == id, "nodes and blocks name each other");
    }
    num_blocks += std::ssize(node.block_ids);
    if (node.parent != kRoot) parents.push_back(node.parent);
  }
  check(num_blocks == num_blocks_, "every filed block is at a node");
  std::ranges::sort(parents);
  int64_t num_children = 0;
  for (const auto& [id, node] : nodes_) {
    const auto [first, last] = std::equal_range(parents.begin(), parents.end(), id);
    check(node.num_children == last - first, "children are counted");
    num_children += node.num_children;
  }
  check(num_children == std::ssize(parents), "a parent lives as long as its children");
}

bool PrefixCache::matches(const Node& node, NodeId parent, std::span<const int32_t> token_ids,
                          std::string_view extra_key) const {
  return node.parent == parent && std::ranges::equal(node.token_ids, token_ids) &&
         (parent != kRoot || node.extra_key == extra_key);
}

std::optional<PrefixCache::NodeId> PrefixCache::find(NodeId parent,
                                                     std::span<const int32_t> token_ids,
                                                     std::string_view extra_key,
                                                     BlockHash hash) const {
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (matches(nodes_.at(it->second), parent, token_ids, extra_key)) return it->second;
  }
  return std::nullopt;
}

PrefixCache::NodeId PrefixCache::node_of(std::optional<int32_t> block_id) const {
  if (!block_id) return kRoot;
  check(contains(*block_id), "the block is filed");
  return node_of_block_[static_cast<size_t>(*block_id)];
}

void PrefixCache::erase_from_index(NodeId id, BlockHash hash) {
  const auto [begin, end] = index_.equal_range(hash);
  const auto it = std::find_if(begin, end, [id](const auto& entry) { return entry.second == id; });
  check(it != end, "every node is indexed");
  index_.erase(it);
}

}  // namespace quire
