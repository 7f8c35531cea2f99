#include "runner/gpu_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
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

TEST_F(StepMasksTest, OneThreadTellsAndTheOtherWaits) {
  ASSERT_TRUE(masks_.claim());
  EXPECT_FALSE(masks_.claim());
  std::thread other([this] {
    masks_.wait_until_told();
    EXPECT_THAT(told_[0], ElementsAre(10));
  });
  masks_.tell(ids_, nullptr);
  other.join();
  EXPECT_FALSE(masks_.claim());
}

TEST_F(StepMasksTest, WhoWaitsLearnsThatTheOtherHasGivenUp) {
  ASSERT_TRUE(masks_.claim());
  std::thread other([this] { EXPECT_THROW(masks_.wait_until_told(), Error); });
  masks_.give_up();
  other.join();
}

TEST(StepMasks, OfAStepWithoutAnyNobodyWaits) {
  StepMasks masks;
  EXPECT_FALSE(masks.claim());
  masks.wait_until_told();
}

}  // namespace
}  // namespace quire
