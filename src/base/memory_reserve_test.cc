#include "base/memory_reserve.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <thread>

namespace quire {
namespace {

// How many more blocks the tests' allocator has.
thread_local int num_left = 0;

void* allocate_if_left(size_t size) {
  return num_left-- > 0 ? std::malloc(size) : nullptr;
}

// What operator new does where malloc has nothing: whether it would try again.
bool handler_helps() {
  try {
    std::get_new_handler()();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

class MemoryReserveTest : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::get_new_handler();
    MemoryReserve::let_new_use_them();
  }
  void TearDown() override { std::set_new_handler(before_); }

 private:
  std::new_handler before_ = nullptr;
};

TEST_F(MemoryReserveTest, GivesAUserItsBlocksOneByOne) {
  MemoryReserve reserve(2, 64);
  const MemoryReserve::User user(&reserve);
  EXPECT_TRUE(handler_helps());
  EXPECT_TRUE(handler_helps());
  EXPECT_FALSE(handler_helps());
}

TEST_F(MemoryReserveTest, HelpsNoOtherThread) {
  MemoryReserve reserve(2, 64);
  const MemoryReserve::User user(&reserve);
  bool helped = true;
  std::thread([&] { helped = handler_helps(); }).join();
  EXPECT_FALSE(helped);
}

TEST_F(MemoryReserveTest, IsForItsScopeOnly) {
  MemoryReserve reserve(2, 64);
  {
    const MemoryReserve::User user(&reserve);
    const MemoryReserve::User none(nullptr);
    EXPECT_FALSE(handler_helps());
  }
  EXPECT_FALSE(handler_helps());
}

TEST_F(MemoryReserveTest, IsRefilled) {
  MemoryReserve reserve(2, 64);
  while (reserve.release()) {
  }
  EXPECT_TRUE(reserve.refill());
  const MemoryReserve::User user(&reserve);
  EXPECT_TRUE(handler_helps());
  EXPECT_TRUE(handler_helps());
}

TEST_F(MemoryReserveTest, SaysWhetherHalfOfItIsThere) {
  num_left = 4;
  MemoryReserve reserve(4, 64, allocate_if_left);
  while (reserve.release()) {
  }
  num_left = 1;
  EXPECT_FALSE(reserve.refill());
  num_left = 1;
  EXPECT_TRUE(reserve.refill());
}

TEST_F(MemoryReserveTest, IsWholeOrThrows) {
  num_left = 3;
  EXPECT_THROW(MemoryReserve(4, 64, allocate_if_left), std::bad_alloc);
}

}  // namespace
}  // namespace quire
