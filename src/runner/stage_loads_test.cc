#include "runner/stage_loads.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace quire {
namespace {

TEST(StageLoads, ArriveAtTheirPlaces) {
  const std::vector<LoadOfStage> loads{{2, {.num_steps = 5, .busy_s = 0.25}},
                                       {0, {.num_steps = int64_t{1} << 40, .busy_s = 1e6}}};
  std::array<StageLoad, 3> stages{};
  stages[1].num_steps = 7;
  constexpr uint64_t kProgress = (uint64_t{3} << 62) + 5;
  const std::vector<std::byte> bytes = encode_stage_loads(kProgress, loads);
  EXPECT_EQ(progress_in(bytes), kProgress);
  EXPECT_EQ(progress_in(encode_stage_loads(kProgress, {})), kProgress);
  take_stage_loads(bytes, stages);
  EXPECT_EQ(stages[0].num_steps, int64_t{1} << 40);
  EXPECT_DOUBLE_EQ(stages[0].busy_s, 1e6);
  EXPECT_EQ(stages[1].num_steps, 7);
  EXPECT_EQ(stages[2].num_steps, 5);
  EXPECT_DOUBLE_EQ(stages[2].busy_s, 0.25);
}

TEST(StageLoads, OtherBytesChangeNothing) {
  std::array<StageLoad, 2> stages{};
  const std::vector<LoadOfStage> loads{{-1, {.num_steps = 1, .busy_s = 1}},
                                       {2, {.num_steps = 1, .busy_s = 1}}};
  take_stage_loads(encode_stage_loads(1, loads), stages);
  const std::vector<LoadOfStage> first{{0, {.num_steps = 1, .busy_s = 1}}};
  std::vector<std::byte> cut = encode_stage_loads(1, first);
  cut.pop_back();
  EXPECT_EQ(progress_in(cut), 0u);
  EXPECT_EQ(progress_in({}), 0u);
  take_stage_loads(cut, stages);
  take_stage_loads({}, stages);
  for (const StageLoad& stage : stages) EXPECT_EQ(stage.num_steps, 0);
}

}  // namespace
}  // namespace quire
