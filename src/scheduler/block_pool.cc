#include "scheduler/block_pool.h"

#include <limits>
#include <utility>

#include "base/check.h"

namespace quire {

BlockRef::BlockRef(const BlockRef& other) : pool_(other.pool_), id_(other.id_) {
  if (pool_ != nullptr) pool_->acquire(id_);
}

BlockRef::BlockRef(BlockRef&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}

BlockRef& BlockRef::operator=(BlockRef other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(id_, other.id_);
  return *this;
}

BlockRef::~BlockRef() {
  if (pool_ != nullptr) pool_->release(id_);
}

BlockPool::BlockPool(int64_t num_blocks, std::function<void(int32_t)> on_evict)
    : on_evict_(std::move(on_evict)) {
  check(num_blocks > 0 && num_blocks < std::numeric_limits<int32_t>::max(),
        "the number of blocks fits a 32-bit id");
  blocks_.resize(static_cast<size_t>(num_blocks));
  links_.resize(static_cast<size_t>(num_blocks) + 1);
  link(head()) = {head(), head()};
  for (int32_t id = 0; id < head(); ++id) insert_before(head(), id);
}

BlockPool::~BlockPool() {
  check(num_free_ == num_blocks(), "a block outlives its pool");
}

BlockRef BlockPool::take() {
  check(num_free_ > 0, "no block is free");
  const int32_t id = link(head()).next;
  if (std::exchange(block(id).cached, false)) on_evict_(id);
  return share(id);
}

BlockRef BlockPool::share(int32_t id) {
  acquire(id);
  return BlockRef(*this, id);
}

void BlockPool::mark_cached(int32_t id) {
  check(block(id).ref_count > 0, "only a block in use gets contents");
  block(id).cached = true;
}

void BlockPool::mark_empty(int32_t id) {
  check(block(id).ref_count == 0 && block(id).cached, "only a free block's contents are forgotten");
  block(id).cached = false;
  // To its place before those that have contents.
  unlink(id);
  insert_before(link(head()).next, id);
}

void BlockPool::check_integrity(std::span<const int32_t> held) const {
  check(held.size() == blocks_.size(), "one count for each block");
  int64_t num_unheld = 0;
  for (int32_t id = 0; id < head(); ++id) {
    check(block(id).ref_count == held[static_cast<size_t>(id)],
          "a block is counted as often as it is held");
    if (block(id).ref_count == 0) ++num_unheld;
  }
  check(num_unheld == num_free_, "the number of free blocks is kept");
  int64_t num_listed = 0;
  int32_t previous = head();
  bool seen_cached = false;
  for (int32_t id = links_.back().next; id != head(); id = links_[static_cast<size_t>(id)].next) {
    check(block(id).ref_count == 0, "only free blocks are listed as free");
    check(links_[static_cast<size_t>(id)].previous == previous,
          "the free list is linked both ways");
    check(block(id).cached || !seen_cached, "blocks without contents are taken first");
    seen_cached = block(id).cached;
    previous = id;
    check(++num_listed <= num_free_, "the free list has no loop");
  }
  check(num_listed == num_free_, "every free block is listed");
}

BlockPool::Block& BlockPool::block(int32_t id) {
  check(id >= 0 && id < head(), "no such block");
  return blocks_[static_cast<size_t>(id)];
}

const BlockPool::Block& BlockPool::block(int32_t id) const {
  check(id >= 0 && id < head(), "no such block");
  return blocks_[static_cast<size_t>(id)];
}

void BlockPool::acquire(int32_t id) {
  if (block(id).ref_count++ == 0) unlink(id);
}

void BlockPool::release(int32_t id) {
  check(block(id).ref_count > 0, "a block is released as often as it was taken");
  if (--block(id).ref_count > 0) return;
  insert_before(block(id).cached ? head() : link(head()).next, id);
}

void BlockPool::insert_before(int32_t next, int32_t id) {
  const int32_t previous = link(next).previous;
  link(id) = {previous, next};
  link(previous).next = id;
  link(next).previous = id;
  ++num_free_;
}

void BlockPool::unlink(int32_t id) {
  const Link old = link(id);
  link(old.previous).next = old.next;
  link(old.next).previous = old.previous;
  --num_free_;
}

}  // namespace quire
