// The sums of a group of GPUs, and all collectives in a graph.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "dist/nccl_cuda_test_util.h"
#include "dist/peer_memory_cuda.h"

namespace quire {
namespace {

using namespace nccl_test;  // NOLINT(google-build-using-namespace)

INSTANTIATE_TEST_SUITE_P(Groups, NcclCommunicators,
                         testing::Values(Devices{"OneDeviceTwice", {0, 0}},
                                         Devices{"OneDeviceThrice", {0, 0, 0}},
                                         Devices{"TwoDevices", {0, 1}},
                                         Devices{"ThreeDevices", {2, 0, 1}},
                                         Devices{"FourDevices", {0, 1, 2, 3}}),
                         [](const auto& info) { return info.param.name; });

Bytes sum_in_rank_order(DType dtype, const std::vector<Bytes>& inputs) {
  Bytes sums(inputs[0].size());
  for (size_t at = 0; at < sums.size(); at += size_of(dtype)) {
    float sum = to_float(dtype, &inputs[0][at]);
    for (size_t r = 1; r < inputs.size(); ++r) sum += to_float(dtype, &inputs[r][at]);
    from_float(dtype, sum, &sums[at]);
  }
  return sums;
}

TEST_P(NcclCommunicators, SumSmallTensorsInRankOrderOnEveryRank) {
  struct Case {
    DType dtype;
    size_t count;
    std::vector<Bytes> inputs;
    Bytes expected;
  };
  std::vector<Case> cases;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const size_t count : {1, 2, 3, 7, 8, 9, 511, 4096, 4099, 65539, 131072, 300001, 1 << 20}) {
      if (count * size_of(dtype) > max_bytes()) continue;
      Case c{dtype, count, {}, {}};
      for (int r = 0; r < size(); ++r) {
        c.inputs.push_back(random_elements(dtype, count, static_cast<unsigned>(count) + 31u * r));
      }
      c.expected = sum_in_rank_order(dtype, c.inputs);
      cases.push_back(std::move(c));
    }
  }
  run(size_t{4} << 20, [&](Rank& rank) {
    for (const Case& c : cases) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        rank.upload(rank.memory(), c.inputs[static_cast<size_t>(rank.comm().rank())]);
        rank.comm().all_reduce_sum(rank.stream(), vector_of(rank.memory(), c.dtype, c.count));
        EXPECT_TRUE(rank.download(c.expected.size(), rank.memory()) == c.expected)
            << c.count << " of " << name_of(c.dtype) << ", repeat " << repeat;
      }
    }
  });
}

// What is summed in one shot, in two and in pieces is the same.
TEST_P(NcclCommunicators, SumsOverPeerMemoryDoNotDependOnTheWay) {
  const auto peers = PeerMemory::make(devices());
  ASSERT_NE(peers, nullptr) << "These GPUs do not reach each other's memory.";
  run(size_t{24} << 20, [&](Rank& rank) {
    for (const size_t count : {1, 5, 63, 8191, 100003, 5'000'003}) {
      const DType dtype = DType::kFloat32;
      if (count * size_of(dtype) > max_bytes()) continue;
      std::vector<Bytes> inputs;
      for (int r = 0; r < size(); ++r) {
        inputs.push_back(random_elements(dtype, count, static_cast<unsigned>(count + 3 * r)));
      }
      const Bytes expected = sum_in_rank_order(dtype, inputs);
      const int own = rank.comm().rank();
      for (const PeerSum how : {PeerSum::kOneShot, PeerSum::kTwoShot}) {
        rank.upload(rank.memory(), inputs[static_cast<size_t>(own)]);
        peer_all_reduce(rank.stream().cuda(), peers->view(own), dtype, rank.memory(),
                        static_cast<int64_t>(count), how);
        EXPECT_TRUE(rank.download(expected.size(), rank.memory()) == expected)
            << count << (how == PeerSum::kOneShot ? " in one shot" : " in two");
      }
    }
  });
}

TEST_P(NcclCommunicators, SumsOfLargeTensorsRepeatBitForBit) {
  constexpr size_t kCount = 5'000'003;
  if (kCount * sizeof(float) > max_bytes()) GTEST_SKIP() << "This takes a device for each rank.";
  std::vector<Bytes> inputs;
  for (int r = 0; r < size(); ++r) {
    inputs.push_back(random_elements(DType::kFloat32, kCount, 17u + static_cast<unsigned>(r)));
  }
  const Bytes expected = sum_in_rank_order(DType::kFloat32, inputs);
  std::vector<Bytes> sums(inputs.size());
  run(kCount * sizeof(float), [&](Rank& rank) {
    Bytes& first = sums[static_cast<size_t>(rank.comm().rank())];
    for (int repeat = 0; repeat < 3; ++repeat) {
      rank.upload(rank.memory(), inputs[static_cast<size_t>(rank.comm().rank())]);
      rank.comm().all_reduce_sum(rank.stream(), vector_of(rank.memory(), DType::kFloat32, kCount));
      Bytes sum = rank.download(expected.size(), rank.memory());
      if (repeat == 0) {
        first = std::move(sum);
      } else {
        EXPECT_TRUE(sum == first) << "repeat " << repeat;
      }
    }
  });
  for (const Bytes& sum : sums) {
    ASSERT_TRUE(sum == sums[0]);
    for (size_t at = 0; at < sum.size(); at += sizeof(float)) {
      const float value = to_float(DType::kFloat32, &sum[at]);
      ASSERT_NEAR(value, to_float(DType::kFloat32, &expected[at]), 1e-3) << at / sizeof(float);
    }
  }
}

TEST_P(NcclCommunicators, SumAddAndNormInOneGo) {
  struct Case {
    DType dtype;
    size_t rows, n;
  };
  constexpr float kEps = 1e-5f;
  for (const Case c : {Case{DType::kBFloat16, 1, 4096}, Case{DType::kBFloat16, 7, 1032},
                       Case{DType::kFloat16, 3, 8}, Case{DType::kFloat32, 2, 4096},
                       Case{DType::kBFloat16, 14, 8192}, Case{DType::kFloat32, 5, 1100},
                       Case{DType::kBFloat16, 33, 4096}, Case{DType::kFloat16, 97, 2056},
                       Case{DType::kFloat32, 41, 3500}, Case{DType::kBFloat16, 300, 5120}}) {
    const size_t count = c.rows * c.n;
    const size_t bytes = count * size_of(c.dtype);
    if (bytes > max_bytes()) continue;
    std::vector<Bytes> inputs;
    for (int r = 0; r < size(); ++r) {
      inputs.push_back(random_elements(c.dtype, count, static_cast<unsigned>(c.n + 5 * r)));
    }
    const Bytes residual = random_elements(c.dtype, count, 99);
    Bytes weight = random_elements(DType::kFloat32, c.n, 98);
    const Bytes sums = sum_in_rank_order(c.dtype, inputs);
    const Bytes new_residual = sum_in_rank_order(c.dtype, {residual, sums});
    std::vector<Bytes> results(inputs.size());
    run(3 * bytes + weight.size() + 64, [&](Rank& rank) {
      std::byte* x = rank.memory();
      std::byte* r = x + bytes;
      std::byte* w = r + bytes;
      rank.upload(w, weight);
      const auto rows = static_cast<int64_t>(c.rows);
      const auto n = static_cast<int64_t>(c.n);
      const Tensor in(x, c.dtype, {rows, n});
      // An odd number of calls finds what an earlier one left in either half of the memory.
      for (int repeat = 0; repeat < 5; ++repeat) {
        rank.upload(x, inputs[static_cast<size_t>(rank.comm().rank())]);
        rank.upload(r, residual);
        ASSERT_TRUE(rank.comm().all_reduce_add_norm(rank.stream(),
                                                    {.x = in,
                                                     .residual = Tensor(r, c.dtype, {rows, n}),
                                                     .weight = Tensor(w, DType::kFloat32, {n}),
                                                     .eps = kEps,
                                                     .out = in}));
        EXPECT_TRUE(rank.download(bytes, r) == new_residual) << c.rows << " x " << c.n;
      }
      results[static_cast<size_t>(rank.comm().rank())] = rank.download(bytes, x);
    });
    for (const Bytes& result : results) EXPECT_TRUE(result == results[0]);
    for (size_t row = 0; row < c.rows; ++row) {
      const auto at = [&](const Bytes& of, size_t i) {
        return static_cast<double>(to_float(c.dtype, &of[(row * c.n + i) * size_of(c.dtype)]));
      };
      double squares = 0;
      for (size_t i = 0; i < c.n; ++i) squares += at(new_residual, i) * at(new_residual, i);
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(c.n) + kEps);
      for (size_t i = 0; i < c.n; ++i) {
        const double expected =
            at(new_residual, i) * scale * to_float(DType::kFloat32, &weight[i * sizeof(float)]);
        ASSERT_NEAR(at(results[0], i), expected,
                    (c.dtype == DType::kFloat32 ? 1e-5 : 1e-2) * (std::abs(expected) + 1e-3))
            << c.rows << " x " << c.n << " at " << row << ", " << i;
      }
    }
  }
}

TEST_P(NcclCommunicators, PassOnNotANumberAndNegativeZero) {
  const std::vector<uint32_t> words = {0xffffffffu, 0x7fffffffu, 0x80000000u, 0xffff0000u,
                                       0x0000ffffu, 0xff800000u, 0x80008000u};
  run(4096, [&](Rank& rank) {
    Bytes bytes(words.size() * sizeof(uint32_t));
    std::memcpy(bytes.data(), words.data(), bytes.size());
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      rank.upload(rank.memory(), bytes);
      rank.comm().all_reduce_sum(rank.stream(),
                                 vector_of(rank.memory(), dtype, bytes.size() / size_of(dtype)));
      const Bytes sum = rank.download(bytes.size(), rank.memory());
      for (size_t at = 0; at < bytes.size(); at += size_of(dtype)) {
        const float before = to_float(dtype, &bytes[at]);
        const float after = to_float(dtype, &sum[at]);
        if (std::isnan(before)) {
          EXPECT_TRUE(std::isnan(after)) << at;
        } else {
          EXPECT_EQ(after, before * static_cast<float>(rank.comm().size())) << at;
          EXPECT_EQ(std::signbit(after), std::signbit(before)) << at;
        }
      }
    }
  });
}

// One-shot and two-shot sums, a gather and a broadcast take turns in the same memory; an odd number
// of calls, so that replays begin in either half of it.
TEST_P(NcclCommunicators, CollectivesInAGraphReplay) {
  constexpr size_t kSmall = 4096;
  constexpr size_t kLarge = 400'000;
  constexpr int kReplays = 100;
  const DType dtype = DType::kBFloat16;
  const size_t bytes = (kSmall + kLarge) * 2;
  std::vector<Bytes> inputs, expected;
  for (int replay = 0; replay < kReplays; ++replay) {
    std::vector<Bytes> of_ranks;
    for (int r = 0; r < size(); ++r) {
      of_ranks.push_back(random_elements(dtype, kSmall, static_cast<unsigned>(replay * 8 + r)));
    }
    expected.push_back(sum_in_rank_order(dtype, of_ranks));
    for (Bytes& input : of_ranks) inputs.push_back(std::move(input));
  }
  std::vector<Bytes> large_inputs;
  for (int r = 0; r < size(); ++r) {
    large_inputs.push_back(random_elements(dtype, kLarge, 1000u + static_cast<unsigned>(r)));
  }
  const Bytes large_expected = sum_in_rank_order(dtype, large_inputs);

  run(4 * bytes + static_cast<size_t>(2 * size()) * kSmall, [&](Rank& rank) {
    const auto own = static_cast<size_t>(rank.comm().rank());
    const auto ranks = static_cast<size_t>(rank.comm().size());
    std::byte* small_in = rank.memory();
    std::byte* large_in = small_in + 2 * kSmall;
    std::byte* small = rank.memory() + bytes;
    std::byte* large = small + 2 * kSmall;
    std::byte* gathered = rank.memory() + 2 * bytes;
    const auto copy = [&](std::byte* to, const std::byte* from, size_t n) {
      check_cuda(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, rank.stream().cuda().get()),
                 "copying a test's data");
    };
    // Of each replay: this rank's input, the sum, and all ranks' inputs.
    const size_t of_replay = 2 * kSmall * (2 + ranks);
    const auto pinned = allocate_cuda_pinned(kReplays * of_replay);
    rank.upload(large_in, large_inputs[own]);

    rank.queue().begin_capture();
    copy(small, small_in, 2 * kSmall);
    copy(large, large_in, 2 * kLarge);
    rank.comm().all_reduce_sum(rank.stream(), vector_of(small, dtype, kSmall));
    rank.comm().all_reduce_sum(rank.stream(), vector_of(large, dtype, kLarge));
    rank.comm().all_gather_columns(
        rank.stream(), Tensor(small_in, dtype, {1, kSmall}),
        Tensor(gathered, dtype, {1, static_cast<int64_t>(kSmall * ranks)}));
    auto graph = rank.queue().end_capture();
    rank.comm().barrier();  // what this allocated may have waited for the device

    for (size_t replay = 0; replay < kReplays; ++replay) {
      std::byte* host = pinned->data() + replay * of_replay;
      std::memcpy(host, inputs[replay * ranks + own].data(), 2 * kSmall);
      rank.queue().copy_to_device(small_in, host, 2 * kSmall);
      rank.queue().launch(*graph);
      rank.queue().copy_to_host(host + 2 * kSmall, small, 2 * kSmall);
      rank.queue().copy_to_host(host + 4 * kSmall, gathered, 2 * kSmall * ranks);
      if (replay % 10 == 0) {
        EXPECT_TRUE(rank.download(2 * kLarge, large) == large_expected) << "replay " << replay;
      }
    }
    rank.queue().synchronize();
    for (size_t replay = 0; replay < kReplays; ++replay) {
      const std::byte* host = pinned->data() + replay * of_replay;
      EXPECT_EQ(std::memcmp(host + 2 * kSmall, expected[replay].data(), 2 * kSmall), 0)
          << "replay " << replay;
      for (size_t r = 0; r < ranks; ++r) {
        EXPECT_EQ(
            std::memcmp(host + (4 + 2 * r) * kSmall, inputs[replay * ranks + r].data(), 2 * kSmall),
            0)
            << "replay " << replay << ", columns of rank " << r;
      }
    }
    rank.comm().barrier();  // freeing pinned memory waits for the device
  });
}

}  // namespace
}  // namespace quire
