#pragma once
// Which KV blocks are in use, and by how many.
//
// A block is held through BlockRefs and frees itself when the last one goes. Free blocks wait in a
// list. Those marked cached keep their contents until they are taken: they queue at the end of the
// list, least recently freed first, behind all blocks without contents worth keeping. Thread
// safety: none needed; the scheduler's thread owns it.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace quire {

class BlockPool;

// A share in one block. Copies share it. Must not outlive its pool.
class BlockRef {
 public:
  BlockRef(const BlockRef& other);
  BlockRef(BlockRef&& other) noexcept;
  BlockRef& operator=(BlockRef other) noexcept;
  ~BlockRef();

  int32_t id() const { return id_; }

 private:
  friend class BlockPool;
  BlockRef(BlockPool& pool, int32_t id) : pool_(&pool), id_(id) {}

  BlockPool* pool_;  // null: moved from
  int32_t id_;
};

class BlockPool {
 public:
  // Calls `on_evict` when a cached block is taken for new contents.
  BlockPool(int64_t num_blocks, std::function<void(int32_t)> on_evict);
  // All BlockRefs must be gone.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t num_free() const { return num_free_; }
  int32_t ref_count(int32_t id) const { return block(id).ref_count; }

  // The free block that is least worth keeping. Requires one.
  BlockRef take();
  // A share in a block with contents, whether it is free or in use.
  BlockRef share(int32_t id);
  // Keep this block's contents while it is free. It must be in use.
  void mark_cached(int32_t id);
  bool is_cached(int32_t id) const { return block(id).cached; }
  // The contents of a free block that is cached are worth nothing any more; on_evict is not called.
  void mark_empty(int32_t id);

  // Aborts unless free list and counts agree, and each block is held as often as `held` says.
  void check_integrity(std::span<const int32_t> held) const;

 private:
  friend class BlockRef;
  // The free list is circular; its head is one element past the blocks themselves.
  struct Link {
    int32_t previous;
    int32_t next;
  };
  struct Block {
    int32_t ref_count = 0;
    bool cached = false;
  };

  Block& block(int32_t id);
  const Block& block(int32_t id) const;
  Link& link(int32_t id) { return links_[static_cast<size_t>(id)]; }
  int32_t head() const { return static_cast<int32_t>(blocks_.size()); }
  void acquire(int32_t id);
  void release(int32_t id);
  void insert_before(int32_t next, int32_t id);
  void unlink(int32_t id);

  std::vector<Block> blocks_;
  std::vector<Link> links_;
  int64_t num_free_ = 0;
  std::function<void(int32_t)> on_evict_;
};

}  // namespace quire
