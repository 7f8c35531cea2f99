// How a group of GPUs begins and ends.
#include <barrier>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dist/nccl_cuda_test_util.h"
#include "dist/nccl_ranks_cuda.h"

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
[[noreturn]] void abort_while_others_wait(std::vector<std::unique_ptr<Communicator>> comms,
                                          const std::vector<int>& devices, size_t count) {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(30));
    std::_Exit(3);
  }).detach();
  std::vector<Communicator*> all;
  for (const auto& comm : comms) all.push_back(comm.get());
  const auto errors = run_ranks(std::move(comms), devices, count * sizeof(float), [&](Rank& rank) {
    if (rank.comm().rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      // As each process does when it learns of the failure.
      for (Communicator* comm : all) comm->abort();
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
  EXPECT_EXIT(abort_while_others_wait(make_nccl_communicators(devices()), devices(), 1000),
              testing::ExitedWithCode(0), "rank 1 fails");
}

TEST_P(NcclGroupsDeathTest, AbortEndsWhatWaitsInNccl) {
  if (devices()[0] == devices()[1]) GTEST_SKIP() << "This takes a device for each rank.";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      abort_while_others_wait(make_nccl_communicators(devices()), devices(), size_t{8} << 20),
      testing::ExitedWithCode(0), "rank 1 fails");
}

// Ranks as those of several processes, each with a device of its own.
std::vector<std::unique_ptr<Communicator>> join_as_processes(const std::vector<int>& devices) {
  const std::vector<std::byte> id = make_nccl_group_id();
  const auto size = static_cast<int>(devices.size());
  auto hosts = make_local_communicators(size);
  std::vector<std::unique_ptr<Communicator>> comms;
  for (int rank = 0; rank < size; ++rank) {
    const auto r = static_cast<size_t>(rank);
    auto joined = join_nccl_group({.size = size,
                                   .ranks = {rank},
                                   .indices = {devices[r]},
                                   .id = id,
                                   .hosts = {std::shared_ptr(std::move(hosts[r]))}});
    comms.push_back(std::move(joined.front()));
  }
  return comms;
}

using NcclProcessesDeathTest = NcclCommunicators;
INSTANTIATE_TEST_SUITE_P(Groups, NcclProcessesDeathTest,
                         testing::Values(Devices{"TwoDevices", {0, 1}},
                                         Devices{"FourDevices", {0, 1, 2, 3}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NcclProcessesDeathTest, AbortEndsWhatWaitsInNccl) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(abort_while_others_wait(join_as_processes(devices()), devices(), 1000),
              testing::ExitedWithCode(0), "rank 1 fails");
}

using NcclProcesses = NcclCommunicators;
INSTANTIATE_TEST_SUITE_P(Groups, NcclProcesses,
                         testing::Values(Devices{"TwoDevices", {0, 1}},
                                         Devices{"FourDevices", {3, 0, 1, 2}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NcclProcesses, AddGatherAndTellInNccl) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kColumns = 500;
  constexpr size_t kCount = kRows * kColumns;
  constexpr size_t kBytes = kCount * sizeof(float);
  const auto part_of = [](int rank) {
    Bytes part(kBytes);
    for (size_t i = 0; i < kCount; ++i) {
      from_float(DType::kFloat32, static_cast<float>(i % 97 + 1000 * rank), &part[4 * i]);
    }
    return part;
  };
  const auto errors =
      run_ranks(join_as_processes(devices()), devices(), 8 * kBytes, [&](Rank& rank) {
        Communicator& comm = rank.comm();
        EXPECT_EQ(comm.size(), size());
        EXPECT_FALSE(comm.splits_rows());
        EXPECT_EQ(comm.peer_words().count, 0);
        std::byte* const in = rank.memory();
        std::byte* const out = in + kBytes;
        const Tensor input(in, DType::kFloat32, {kRows, kColumns});
        const Tensor output(out, DType::kFloat32, {kRows, kColumns * size()});
        rank.upload(in, part_of(comm.rank()));
        comm.all_gather_columns(rank.stream(), input, output);
        const Bytes gathered = rank.download(kBytes * static_cast<size_t>(size()), out);
        comm.all_reduce_sum(rank.stream(), input);
        const Bytes sum = rank.download(kBytes, in);
        rank.upload(in, part_of(comm.rank()));
        comm.broadcast(rank.stream(), input, 1);
        EXPECT_EQ(rank.download(kBytes, in), part_of(1));
        for (size_t i = 0; i < kCount; ++i) {
          float expected = 0;
          for (int r = 0; r < size(); ++r) {
            const float value = to_float(DType::kFloat32, &part_of(r)[4 * i]);
            expected += value;
            const size_t at =
                (i / kColumns * static_cast<size_t>(size()) + static_cast<size_t>(r)) * kColumns +
                i % kColumns;
            ASSERT_EQ(to_float(DType::kFloat32, &gathered[4 * at]), value);
          }
          ASSERT_EQ(to_float(DType::kFloat32, &sum[4 * i]), expected);
        }
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The same where they look for a way to each other's memory.
std::vector<std::unique_ptr<Communicator>> join_with_memory(const std::vector<int>& devices) {
  const std::vector<std::byte> id = make_nccl_group_id();
  const size_t size = devices.size();
  auto hosts = make_local_communicators(static_cast<int>(size));
  std::vector<std::unique_ptr<Communicator>> comms(size);
  std::vector<std::vector<std::byte>> said(size);
  std::barrier meeting(static_cast<std::ptrdiff_t>(size));
  std::vector<std::thread> processes;
  for (size_t r = 0; r < size; ++r) {
    processes.emplace_back([&, r] {
      const auto exchange = [&](std::span<const std::byte> mine) {
        said[r].assign(mine.begin(), mine.end());
        meeting.arrive_and_wait();
        std::vector<std::byte> all;
        for (const auto& one : said) all.insert(all.end(), one.begin(), one.end());
        meeting.arrive_and_wait();
        return all;
      };
      auto joined = join_nccl_group({.size = static_cast<int>(size),
                                     .ranks = {static_cast<int>(r)},
                                     .indices = {devices[r]},
                                     .id = id,
                                     .hosts = {std::shared_ptr(std::move(hosts[r]))},
                                     .exchange = exchange});
      comms[r] = std::move(joined.front());
    });
  }
  for (std::thread& process : processes) process.join();
  return comms;
}

TEST_P(NcclProcesses, SumThroughEachOthersMemory) {
  constexpr size_t kCount = 3000;
  const auto expected = [&] {
    std::vector<float> sum(kCount, 0);
    for (int r = 0; r < size(); ++r) {
      const Bytes part = random_elements(DType::kFloat32, kCount, static_cast<unsigned>(r));
      for (size_t i = 0; i < kCount; ++i) sum[i] += to_float(DType::kFloat32, &part[4 * i]);
    }
    return sum;
  }();
  const auto errors =
      run_ranks(join_with_memory(devices()), devices(), kCount * sizeof(float), [&](Rank& rank) {
        Communicator& comm = rank.comm();
        EXPECT_TRUE(comm.splits_rows());
        EXPECT_GT(comm.peer_words().count, 0);
        for (int round = 0; round < 5; ++round) {
          rank.upload(rank.memory(),
                      random_elements(DType::kFloat32, kCount, static_cast<unsigned>(comm.rank())));
          comm.all_reduce_sum(rank.stream(), vector_of(rank.memory(), DType::kFloat32, kCount));
          const Bytes sum = rank.download(kCount * sizeof(float), rank.memory());
          for (size_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(to_float(DType::kFloat32, &sum[4 * i]), expected[i]);
          }
        }
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(NcclProcesses, APairSendsBesideAnotherGroup) {
  constexpr size_t kBytes = size_t{1} << 20;
  const auto id = make_nccl_group_id();
  std::vector<std::unique_ptr<Communicator>> pair;
  for (int rank = 0; rank < 2; ++rank) {
    auto joined = join_nccl_group({.size = 2,
                                   .ranks = {rank},
                                   .indices = {devices()[static_cast<size_t>(rank)]},
                                   .id = id,
                                   .hosts = {make_idle_communicator(rank, 2)},
                                   .is_pair = true});
    pair.push_back(std::move(joined.front()));
  }
  const auto errors =
      run_ranks(join_as_processes(devices()), devices(), 2 * kBytes, [&](Rank& rank) {
        const int number = rank.comm().rank();
        const Tensor summed = vector_of(rank.memory() + kBytes, DType::kFloat32, kBytes / 4);
        rank.comm().all_reduce_sum(rank.stream(), summed);
        if (number > 1) return;
        Communicator& comm = *pair[static_cast<size_t>(number)];
        const Tensor tensor = vector_of(rank.memory(), DType::kInt8, kBytes);
        for (unsigned round = 0; round < 3; ++round) {
          const Bytes content = random_bits(kBytes, round);
          if (number == 0) {
            rank.upload(rank.memory(), content);
            comm.send(rank.stream(), tensor, 1);
          } else {
            comm.receive(rank.stream(), tensor, 0);
            EXPECT_EQ(rank.download(kBytes, rank.memory()), content);
          }
        }
      });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(NcclProcesses, AbortFreesARankWhoseOthersNeverCome) {
  auto hosts = make_local_communicators(2);
  auto comms = join_nccl_group({.size = 2,
                                .ranks = {0},
                                .indices = {devices()[0]},
                                .id = make_nccl_group_id(),
                                .hosts = {std::shared_ptr(std::move(hosts[0]))}});
  std::thread aborter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    comms[0]->abort();
  });
  EXPECT_THROW(comms[0]->barrier(), Error);
  aborter.join();
}

TEST_P(NcclProcesses, TheOthersHaveALimitedTimeToCome) {
  auto comms = join_nccl_group({.size = 2,
                                .ranks = {0},
                                .indices = {devices()[0]},
                                .id = make_nccl_group_id(),
                                .hosts = {make_idle_communicator(0, 2)},
                                .timeout_s = 0.5});
  try {
    comms[0]->barrier();
    ADD_FAILURE() << "the wait has ended without an error";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("After 0.5 s (--join-timeout) NCCL has not "))
        << error.what();
  }
}

}  // namespace
}  // namespace quire
