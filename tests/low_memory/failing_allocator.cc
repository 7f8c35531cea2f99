#include "low_memory/failing_allocator.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

namespace quire::low_memory {
namespace {

constexpr long kNever = std::numeric_limits<long>::max();

thread_local long left_of_this_thread = kNever;
thread_local bool exempt = false;
std::atomic<long> left_of_all{kNever};  // the one that finds 0 fails
std::atomic<bool> one_failed{false};

bool is_to_fail() {
  if (left_of_this_thread != kNever && left_of_this_thread-- <= 0) {
    left_of_this_thread = 0;
    return true;
  }
  if (exempt || left_of_all.load() == kNever || left_of_all.fetch_sub(1) != 0) return false;
  one_failed = true;
  return true;
}

// As the standard has it: the new handler is called until there is memory, or it throws.
void* allocate(std::size_t size) {
  while (true) {
    if (!is_to_fail()) {
      if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void fail_after(long count) {
  left_of_this_thread = count;
}
void allow_all() {
  left_of_this_thread = kNever;
}
void exempt_this_thread() {
  exempt = true;
}

FailOne::FailOne(long index) {
  one_failed = false;
  left_of_all = index;
}
FailOne::~FailOne() {
  left_of_all = kNever;
}
bool FailOne::failed() const {
  return one_failed;
}

}  // namespace quire::low_memory

void* operator new(std::size_t size) {
  return quire::low_memory::allocate(size);
}
void* operator new[](std::size_t size) {
  return quire::low_memory::allocate(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  try {
    return quire::low_memory::allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new[](std::size_t size, const std::nothrow_t& nothrow) noexcept {
  return operator new(size, nothrow);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
