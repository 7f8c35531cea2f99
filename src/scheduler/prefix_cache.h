#pragma once
// Finds KV blocks by the tokens whose keys and values they hold.
//
// What a full block holds depends on its own tokens, on all tokens before them, and on an extra key
// (salt). Such contents are one node of a tree: a node's parent is the contents of the block
// before. Nodes are found by a hash over the parent's hash, the tokens and the extra key; and a
// node is a hit only if its parent is the very node found for the block before, its tokens are
// equal, and so is the extra key. So a collision costs a comparison and never shares another's
// text.
//
// Two sequences that compute the same contents at the same time leave two blocks at one node;
// either will do. A node whose blocks are all gone stays while nodes below it have blocks, to keep
// its identity, and is no hit. Thread safety: none needed; the scheduler's thread owns it.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "request/token_view.h"

namespace quire {

using BlockHash = uint64_t;
// (the hash of the block before or 0, the block's tokens, the extra key)
using BlockHasher = std::function<BlockHash(BlockHash, std::span<const int32_t>, std::string_view)>;

// xxh3 with 64 bits, seeded with the parent's hash.
BlockHash hash_block(BlockHash parent, std::span<const int32_t> token_ids,
                     std::string_view extra_key);

class PrefixCache {
 public:
  explicit PrefixCache(int block_size, BlockHasher hasher = hash_block);

  // Hashes of the full blocks of `token_ids` are appended to `hashes`, which has those of the first
  // hashes.size() blocks already.
  void extend_hashes(TokenView token_ids, std::string_view extra_key,
                     std::vector<BlockHash>& hashes) const;

  // The blocks that hold the first of the hashes.size() full blocks of `token_ids`, as many as
  // there are without a gap.
  std::vector<int32_t> lookup(TokenView token_ids, std::string_view extra_key,
                              std::span<const BlockHash> hashes) const;

  // Files block `block_id` under its contents: `token_ids` (block_size of them), after those that
  // `parent_block_id` is filed under; nullopt: none, the block is a sequence's first.
  void insert(int32_t block_id, std::optional<int32_t> parent_block_id,
              std::span<const int32_t> token_ids, std::string_view extra_key, BlockHash hash);

  // Forgets a block that is filed.
  void erase(int32_t block_id);

  bool contains(int32_t block_id) const {
    const auto at = static_cast<size_t>(block_id);
    return at < node_of_block_.size() && node_of_block_[at] != kRoot;
  }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }

  // Aborts unless `block_id` is filed under the contents described, as insert() has them.
  void check_filed(int32_t block_id, std::optional<int32_t> parent_block_id,
                   std::span<const int32_t> token_ids, std::string_view extra_key) const;
  // Aborts unless nodes, their index and their counts agree.
  void check_integrity() const;

 private:
  using NodeId = uint64_t;  // never used twice
  static constexpr NodeId kRoot = 0;

  struct Node {
    NodeId parent = kRoot;
    BlockHash hash = 0;
    std::vector<int32_t> token_ids;
    std::string extra_key;  // of children of the root only: those below inherit it
    std::vector<int32_t> block_ids;
    int64_t num_children = 0;
  };

  bool matches(const Node& node, NodeId parent, std::span<const int32_t> token_ids,
               std::string_view extra_key) const;
  std::optional<NodeId> find(NodeId parent, std::span<const int32_t> token_ids,
                             std::string_view extra_key, BlockHash hash) const;
  NodeId node_of(std::optional<int32_t> block_id) const;
  void erase_from_index(NodeId id, BlockHash hash);

  size_t block_size_;
  BlockHasher hasher_;
  NodeId next_id_ = kRoot + 1;
  std::unordered_map<NodeId, Node> nodes_;
  std::unordered_multimap<BlockHash, NodeId> index_;
  std::vector<NodeId> node_of_block_;  // kRoot: the block is not filed
  int64_t num_blocks_ = 0;             // that are filed
};

}  // namespace quire
