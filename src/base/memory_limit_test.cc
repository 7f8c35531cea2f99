#include "base/memory_limit.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "base/temporary_folder_test_util.h"

namespace quire {
namespace {

class MemoryLimitTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  int64_t limit() const { return memory_limit(folder_.path()); }

  TemporaryFolder folder_;
};

TEST_F(MemoryLimitTest, IsTheMachinesWhereNothingElseIsSaid) {
  EXPECT_EQ(limit(), std::numeric_limits<int64_t>::max());
  write("proc/meminfo", "MemFree: 12 kB\nMemTotal:       2048 kB\n");
  EXPECT_EQ(limit(), 2048 * 1024);
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(limit(), 2048 * 1024);
}

TEST_F(MemoryLimitTest, IsTheContainers) {
  write("proc/meminfo", "MemTotal: 2048 kB\n");
  write("proc/self/cgroup", "0::/../elsewhere\n");
  write("sys/fs/cgroup/memory.max", "1000000\n");
  EXPECT_EQ(limit(), 1'000'000);
}

TEST_F(MemoryLimitTest, IsTheLeastOfTheGroupsAbove) {
  write("proc/self/cgroup", "0::/system.slice/quire.service\n");
  write("sys/fs/cgroup/system.slice/quire.service/memory.max", "max\n");
  write("sys/fs/cgroup/system.slice/memory.max", "700\n");
  EXPECT_EQ(limit(), 700);
  write("sys/fs/cgroup/system.slice/quire.service/memory.max", "600\n");
  EXPECT_EQ(limit(), 600);
}

TEST_F(MemoryLimitTest, ReadsTheFirstVersionToo) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "12345\n");
  EXPECT_EQ(limit(), 12345);
}

TEST_F(MemoryLimitTest, OfThisMachineIsPositive) {
  EXPECT_GT(memory_limit(), 0);
}

}  // namespace
}  // namespace quire
