#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

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
  int64_t left() const { return memory_left(folder_.path()); }

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

TEST_F(MemoryLimitTest, LeavesTheMachinesFreeMemory) {
  EXPECT_EQ(left(), std::numeric_limits<int64_t>::max());
  write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable:  2048 kB\n");
  EXPECT_EQ(left(), 2048 * 1024);
}

TEST_F(MemoryLimitTest, LeavesWhatItsGroupHasNotUsed) {
  write("proc/meminfo", "MemTotal: 4096 kB\nMemAvailable: 4096 kB\n");
  write("proc/self/cgroup", "0::/../elsewhere\n");
  write("sys/fs/cgroup/memory.max", "1000000\n");
  EXPECT_EQ(left(), 1'000'000) << "what is used is not known";
  write("sys/fs/cgroup/memory.current", "600000\n");
  EXPECT_EQ(left(), 400'000);
  write("sys/fs/cgroup/memory.stat", "anon 450000\ninactive_file 100000\nfile 150000\n");
  EXPECT_EQ(left(), 500'000) << "unused file pages are free";
  write("sys/fs/cgroup/memory.current", "1200000\n");
  EXPECT_EQ(left(), 0);
}

TEST_F(MemoryLimitTest, LeavesWhatTheGroupsAboveHaveNotUsed) {
  write("proc/self/cgroup", "0::/kubepods/pod7/quire\n");
  write("sys/fs/cgroup/kubepods/pod7/quire/memory.max", "max\n");
  write("sys/fs/cgroup/kubepods/pod7/quire/memory.current", "100\n");
  write("sys/fs/cgroup/kubepods/pod7/memory.max", "1000\n");
  write("sys/fs/cgroup/kubepods/pod7/memory.current", "700\n");
  write("sys/fs/cgroup/kubepods/memory.max", "5000\n");
  write("sys/fs/cgroup/kubepods/memory.current", "4500\n");
  EXPECT_EQ(left(), 300) << "others in the pod have used most";
}

TEST_F(MemoryLimitTest, LeavesWhatAGroupOfTheFirstVersionHasNotUsed) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/x\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "123456789\n");
  write("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1000\n");
  write("sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "900\n");
  write("sys/fs/cgroup/memory/docker/x/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
  EXPECT_EQ(left(), 150);
}

// The limit is real, but so large that it hinders nothing.
TEST_F(MemoryLimitTest, LeavesWhatOfTheAddressSpaceIsNotTaken) {
  constexpr int64_t kLimit = int64_t{1} << 50;
  constexpr int64_t kThreads = int64_t{512} << 20;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_max != RLIM_INFINITY) GTEST_SKIP() << "the tests' own limit is lower";
  const rlimit limit{kLimit, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_EQ(left(), kLimit - kThreads) << "what is taken is not known";
  write("proc/self/statm", "1000 1 1 1 0 1 0\n");
  EXPECT_EQ(left(), kLimit - kThreads - 1000 * page);
  write("proc/self/statm", std::to_string(kLimit / page) + " 1 1 1 0 1 0\n");
  EXPECT_EQ(left(), 0);
  EXPECT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
}

TEST_F(MemoryLimitTest, OfThisMachineIsPositive) {
  EXPECT_GT(memory_limit(), 0);
  EXPECT_GT(memory_left(), 0);
  EXPECT_LE(memory_left(), memory_limit());
}

}  // namespace
}  // namespace quire
