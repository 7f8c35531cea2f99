#include "base/memory_reserve.h"

#include <cstdlib>
#include <new>
#include <utility>

namespace quire {
namespace {

// A new handler has no arguments.
thread_local MemoryReserve* reserve_of_this_thread = nullptr;

void use_reserve() {
  if (reserve_of_this_thread == nullptr || !reserve_of_this_thread->release()) {
    throw std::bad_alloc();
  }
}

}  // namespace

MemoryReserve::MemoryReserve(size_t num_blocks, size_t block_bytes, Allocate allocate)
    : num_blocks_(num_blocks),
      block_bytes_(block_bytes),
      allocate_(allocate != nullptr ? allocate : std::malloc) {
  blocks_.reserve(num_blocks_);
  refill();
  if (blocks_.size() == num_blocks_) return;
  while (release()) {
  }
  throw std::bad_alloc();
}

MemoryReserve::~MemoryReserve() {
  while (release()) {
  }
}

bool MemoryReserve::release() noexcept {
  const std::lock_guard lock(mutex_);
  if (blocks_.empty()) return false;
  std::free(blocks_.back());
  blocks_.pop_back();
  return true;
}

bool MemoryReserve::refill() noexcept {
  const std::lock_guard lock(mutex_);
  while (blocks_.size() < num_blocks_) {
    void* const block = allocate_(block_bytes_);
    if (block == nullptr) break;
    blocks_.push_back(block);
  }
  return blocks_.size() >= (num_blocks_ + 1) / 2;
}

MemoryReserve::User::User(MemoryReserve* reserve)
    : before_(std::exchange(reserve_of_this_thread, reserve)) {}
MemoryReserve::User::~User() {
  reserve_of_this_thread = before_;
}

void MemoryReserve::let_new_use_them() {
  std::set_new_handler(use_reserve);
}

}  // namespace quire
