// How a group of GPUs begins and ends.
#include <chrono>
#include <cstdio>
#include <thread>

#include "dist/nccl_cuda_test_util.h"

namespace quire {
namespace {

using namespace nccl_test;  // NOLINT(google-build-using-namespace)

using NcclGroups = NcclCommunicators;
INSTANTIATE_TEST_SUITE_P(Groups, NcclGroups,
                         testing::Values(Devices{"OneDeviceTwice", {0, 0}},
                                         Devices{"OneDeviceThrice", {0, 0, 0}},
                                         Devices{"TwoDevices", {0, 1}},
                                         Devices{"ThreeDevices", {2, 0, 1}},
                                         Devices{"FourDevices", {0, 1, 2, 3}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NcclGroups, AreTheOnlyGroupOfTheirDevices) {
  const std::vector<int> overlapping = {devices().back(), devices().back()};
  auto first = make_nccl_communicators(devices());
  EXPECT_THROW(make_nccl_communicators(overlapping), Error);
  EXPECT_NO_THROW(make_nccl_communicators(std::vector{devices()[0]}));
  first.resize(1);
  EXPECT_THROW(make_nccl_communicators(overlapping), Error);
  first.clear();
  EXPECT_NO_THROW(make_nccl_communicators(overlapping));
}

TEST_P(NcclGroups, AbortEndsABarrierAndWhatComesAfter) {
  const auto errors = run_ranks(devices(), 4096, [](Rank& rank) {
    if (rank.comm().rank() == 1) throw Error("rank 1 fails");
    EXPECT_THROW(rank.comm().barrier(), Error);
    rank.comm().all_reduce_sum(rank.stream(), vector_of(rank.memory(), DType::kFloat32, 16));
  });
  EXPECT_EQ(errors[0], "Rank 0 of " + std::to_string(size()) +
                           " stopped because another rank of its group failed.");
  EXPECT_EQ(errors[1], "rank 1 fails");
}

// Rank 1 fails while the others wait for it on their devices. Leaves the process without a GPU.
[[noreturn]] void abort_while_others_wait(const std::vector<int>& devices, size_t count) {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(30));
    std::_Exit(3);
  }).detach();
  const auto errors = run_ranks(devices, count * sizeof(float), [&](Rank& rank) {
    if (rank.comm().rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      throw Error("rank 1 fails");
    }
    const Tensor tensor = vector_of(rank.memory(), DType::kFloat32, count);
    rank.comm().all_reduce_sum(rank.stream(), tensor);
    rank.queue().synchronize();
    rank.comm().all_reduce_sum(rank.stream(), tensor);
  });
  for (const std::string& error : errors) {
    std::fprintf(stderr, "%s\n", error.c_str());
    if (error.empty()) std::_Exit(1);
  }
  std::_Exit(0);
}

using NcclGroupsDeathTest = NcclCommunicators;
INSTANTIATE_TEST_SUITE_P(Groups, NcclGroupsDeathTest,
                         testing::Values(Devices{"OneDeviceTwice", {0, 0}},
                                         Devices{"TwoDevices", {0, 1}},
                                         Devices{"FourDevices", {0, 1, 2, 3}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NcclGroupsDeathTest, AbortEndsWhatWaitsOnADevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(abort_while_others_wait(devices(), 1000), testing::ExitedWithCode(0), "rank 1 fails");
}

TEST_P(NcclGroupsDeathTest, AbortEndsWhatWaitsInNccl) {
  if (devices()[0] == devices()[1]) GTEST_SKIP() << "This takes a device for each rank.";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(abort_while_others_wait(devices(), size_t{8} << 20), testing::ExitedWithCode(0),
              "rank 1 fails");
}

}  // namespace
}  // namespace quire
