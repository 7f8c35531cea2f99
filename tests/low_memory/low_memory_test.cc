// Every allocation fails once, in turn, and with it all that follow it: what a client's body is
// read into ends with std::bad_alloc, frees what it held without allocating, and works the next
// time.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"

namespace {

constexpr long kNever = std::numeric_limits<long>::max();
// Of this thread, until allocations fail.
thread_local long allocations_left = kNever;

void* allocate(std::size_t size) {
  if (allocations_left != kNever && allocations_left-- <= 0) {
    allocations_left = 0;
    throw std::bad_alloc();
  }
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t size) {
  return allocate(size);
}
void* operator new[](std::size_t size) {
  return allocate(size);
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

namespace quire {
namespace {

// Runs `work` with no memory from its first allocation on, from its second on, and so on, until it
// has enough. Returns how many it needs.
template <typename Work>
long run_with_ever_more_memory(Work work) {
  for (long allowed = 0;; ++allowed) {
    allocations_left = allowed;
    try {
      work();
      allocations_left = kNever;
      return allowed;
    } catch (const std::bad_alloc&) {
      allocations_left = kNever;
    }
  }
}

const std::string kNested =
    R"({"a": [1, [2, [3, "a string that is too long to be held in place"]], {}], "b": {"c": {"d": [[], [[]]]}}})";

TEST(LowMemory, JsonIsReadAndFreed) {
  EXPECT_GT(run_with_ever_more_memory([] {
              nlohmann::ordered_json value = parse_json_text(kNested, {});
              const JsonClearer clearer(value);
              const std::string text(100, 'x');  // fails while the value lives
            }),
            20);
}

}  // namespace
}  // namespace quire
