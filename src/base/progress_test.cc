#include "base/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FormatDuration, UsesTheLargestUnitThatFits) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(59), "59 s");
  EXPECT_EQ(format_duration(60), "1:00");
  EXPECT_EQ(format_duration(187), "3:07");
  EXPECT_EQ(format_duration(3723), "1:02:03");
}

TEST(RenderProgress, ShowsShareTimeLeftAndDetail) {
  const std::string line = render_progress("Loading", 0.25, 10, "120 MB/s", 80);
  EXPECT_EQ(line, "Loading [########......................]  25 %  30 s left  120 MB/s");
}

TEST(RenderProgress, LeavesOutWhatDoesNotFit) {
  const std::string line = render_progress("Loading", 0.5, 0, "a detail far too long", 30);
  EXPECT_EQ(line.size(), 30U);
  EXPECT_THAT(line, HasSubstr("50 %"));
  EXPECT_THAT(line, Not(HasSubstr("detail")));
  EXPECT_EQ(render_progress("Loading", 0.5, 0, "", 14), "Loading  50 %");
  EXPECT_EQ(render_progress("Loading", 0.5, 0, "", 4), "Load");
}

TEST(RenderProgress, TheBarMakesRoomForTheDetail) {
  EXPECT_EQ(render_progress("Loading", 0.5, 0, "a detail of some length", 51),
            "Loading [#####.....]  50 %  a detail of some length");
}

TEST(RenderProgress, ClampsTheFraction) {
  EXPECT_THAT(render_progress("x", 7, 0, "", 80), HasSubstr("100 %"));
  EXPECT_THAT(render_progress("x", -1, 0, "", 80), HasSubstr("  0 %"));
  EXPECT_THAT(render_progress("x", std::nan(""), 0, "", 80), HasSubstr("  0 %"));
}

TEST(ProgressBar, WritesNothingWhereThereIsNoTerminal) {
  std::array<int, 2> pipe_fds{};
  ASSERT_EQ(pipe(pipe_fds.data()), 0);
  {
    ProgressBar bar(pipe_fds[1], "Loading");
    EXPECT_FALSE(bar.visible());
    bar.update(0.5);
  }
  close(pipe_fds[1]);
  char byte = 0;
  EXPECT_EQ(read(pipe_fds[0], &byte, 1), 0);
  close(pipe_fds[0]);
}

}  // namespace
}  // namespace quire
