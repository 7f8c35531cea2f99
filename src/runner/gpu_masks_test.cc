#include "runner/gpu_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "ops/no_token.h"
#include "quire/error.h"

namespace quire {
namespace {

using testing::ElementsAre;

constexpr int32_t kNone = 99;

// Takes every token but those that are refused, and remembers what it was told.
class RecordingMask final : public RowMask {
 public:
  RecordingMask(std::vector<int32_t>& told, int32_t refused) : told_(told), refused_(refused) {}
  std::span<const uint32_t> allowed() const override { return {}; }
  bool takes_all() const override { return refused_ == kNone; }
  bool take(int32_t token) override {
    told_.push_back(token);
    return token != refused_;
  }

 private:
  std::vector<int32_t>& told_;
  int32_t refused_;
};

class StepMasksTest : public testing::Test {
 protected:
  StepMasksTest() {
    masks_.rows.push_back({.row = 0, .mask = std::make_unique<RecordingMask>(told_[0], kNone)});
    masks_.rows.push_back({.row = 2, .mask = nullptr});
    masks_.rows.push_back({.row = 3, .mask = std::make_unique<RecordingMask>(told_[1], 13)});
    masks_.rows.push_back({.row = 4, .mask = std::make_unique<RecordingMask>(told_[2], kNone)});
  }

  const int32_t ids_[5] = {10, 11, 12, 13, ops::kNoToken};
  std::vector<int32_t> told_[3];
  StepMasks masks_;
};

TEST_F(StepMasksTest, TellsWhatWasSampledAndTellsThoseThatRefuseItAgain) {
  EXPECT_FALSE(masks_.take_all());
  const int32_t ids_again[5] = {0, 0, 0, 23, 0};
  for (const int threads : {0, 1, 3}) {
    for (std::vector<int32_t>& told : told_) told.clear();
    ThreadPool pool(std::max(threads, 1));
    masks_.tell(ids_, threads == 0 ? nullptr : &pool);
    EXPECT_TRUE(masks_.has_refused());
    masks_.tell_again(ids_again);
    EXPECT_THAT(told_[0], ElementsAre(10));
    EXPECT_THAT(told_[1], ElementsAre(13, 23));
    EXPECT_THAT(told_[2], ElementsAre());
  }
  masks_.rows.erase(masks_.rows.begin() + 2);
  EXPECT_TRUE(masks_.take_all());
  EXPECT_FALSE(masks_.has_refused());
}

// A thread that waits until masks are told.
class Waiter {
 public:
  template <typename Wait>
  explicit Waiter(Wait wait)
      : thread_([this, wait] {
          begun_.set_value();
          wait();
          returned_.set_value();
        }) {}
  ~Waiter() { thread_.join(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Whether it waits, as far as can be seen: one that does never fails this.
  bool waits() {
    begun_.get_future().wait();
    constexpr std::chrono::milliseconds kLongForOneThatDoesNot{50};
    return returned_.get_future().wait_for(kLongForOneThatDoesNot) == std::future_status::timeout;
  }

 private:
  std::promise<void> begun_;
  std::promise<void> returned_;
  std::thread thread_;
};

// Is told while another thread waits.
class MaskThatLooks final : public RowMask {
 public:
  explicit MaskThatLooks(Waiter& waiter) : waiter_(waiter) {}
  std::span<const uint32_t> allowed() const override { return {}; }
  bool takes_all() const override { return true; }
  bool take(int32_t /*token*/) override {
    EXPECT_TRUE(waiter_.waits());
    return true;
  }

 private:
  Waiter& waiter_;
};

TEST_F(StepMasksTest, OneThreadTellsAndTheOtherWaits) {
  ASSERT_TRUE(masks_.claim());
  EXPECT_FALSE(masks_.claim());
  {
    Waiter other([this] {
      masks_.wait_until_told();
      EXPECT_THAT(told_[0], ElementsAre(10));
    });
    masks_.rows[1].mask = std::make_unique<MaskThatLooks>(other);
    masks_.tell(ids_, nullptr);
  }
  EXPECT_FALSE(masks_.claim());
}

TEST_F(StepMasksTest, WhoWaitsLearnsThatTheOtherHasGivenUp) {
  ASSERT_TRUE(masks_.claim());
  Waiter other([this] { EXPECT_THROW(masks_.wait_until_told(), Error); });
  EXPECT_TRUE(other.waits());
  masks_.give_up();
}

TEST(StepMasks, OfAStepWithoutAnyNobodyWaits) {
  StepMasks masks;
  EXPECT_FALSE(masks.claim());
  masks.wait_until_told();
}

}  // namespace
}  // namespace quire
