#include "base/memory_account.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace quire {
namespace {

TEST(MemoryAccount, HasWhatItsChargesHave) {
  const auto account = std::make_shared<MemoryAccount>(100);
  {
    MemoryCharge first(account);
    MemoryCharge second(account);
    EXPECT_TRUE(first.add(60));
    EXPECT_TRUE(second.add(40));
    EXPECT_EQ(account->used(), 100);
    EXPECT_FALSE(second.add(1));
    EXPECT_EQ(second.bytes(), 40);
    EXPECT_TRUE(first.resize(10));
    EXPECT_EQ(first.peak_bytes(), 60);
    EXPECT_TRUE(second.resize(90));
    EXPECT_EQ(account->used(), 100);
  }
  EXPECT_EQ(account->used(), 0);
  EXPECT_EQ(account->num_refused(), 1);
}

TEST(MemoryAccount, SaysWhenThoseThatEndedHadMuch) {
  constexpr int64_t kMuch = MemoryAccount::kMuchBytes;
  const auto account = std::make_shared<MemoryAccount>(2 * kMuch);
  int num_calls = 0;
  account->on_much_ended([&num_calls] { ++num_calls; });
  const auto ends_much = [&](int64_t peak) {
    {
      MemoryCharge charge(account);
      EXPECT_TRUE(charge.add(peak));
      EXPECT_TRUE(charge.resize(1));
      EXPECT_EQ(num_calls, 0) << "before it has ended";
    }
    return std::exchange(num_calls, 0) == 1;
  };
  EXPECT_FALSE(ends_much(kMuch / 2));
  for (int i = 0; i < 200; ++i) {
    EXPECT_FALSE(ends_much(MemoryAccount::kCountedBytes - 1)) << "below what counts";
  }
  EXPECT_TRUE(ends_much(kMuch / 2));
  EXPECT_FALSE(ends_much(kMuch - 1)) << "it has begun anew";
  EXPECT_TRUE(ends_much(2 * kMuch));
  account->on_much_ended({});
  EXPECT_FALSE(ends_much(2 * kMuch));
}

TEST(MemoryAccount, ALargeFigureDoesNotWrapRound) {
  const auto account = std::make_shared<MemoryAccount>(100);
  MemoryCharge held(account);
  EXPECT_TRUE(held.add(1));
  MemoryCharge charge(account);
  EXPECT_FALSE(charge.add(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(account->used(), 1);
}

TEST(MemoryAccount, ThreadsNeverTakeMoreThanThereIs) {
  static constexpr int64_t kLimit = 1000;
  const auto account = std::make_shared<MemoryAccount>(kLimit);
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&account, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 10'000; ++i) {
        MemoryCharge charge(account);
        const bool first = charge.add(static_cast<int64_t>(random() % 400));
        const bool second = charge.resize(static_cast<int64_t>(random() % 400));
        EXPECT_TRUE(first || second || charge.bytes() == 0);
        EXPECT_LE(account->used(), kLimit);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(account->used(), 0);
}

}  // namespace
}  // namespace quire
