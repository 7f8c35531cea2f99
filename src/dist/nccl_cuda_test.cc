// What the collectives of a group of GPUs compute.
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

float to_float(DType dtype, const std::byte* from) {
  float value = 0;
  if (dtype == DType::kFloat32) {
    std::memcpy(&value, from, sizeof(value));
  } else if (dtype == DType::kBFloat16) {
    BFloat16 half;
    std::memcpy(&half, from, sizeof(half));
    value = static_cast<float>(half);
  } else {
    Float16 half;
    std::memcpy(&half, from, sizeof(half));
    value = static_cast<float>(half);
  }
  return value;
}

void from_float(DType dtype, float value, std::byte* to) {
  if (dtype == DType::kFloat32) {
    std::memcpy(to, &value, sizeof(value));
  } else if (dtype == DType::kBFloat16) {
    const BFloat16 half(value);
    std::memcpy(to, &half, sizeof(half));
  } else {
    const Float16 half(value);
    std::memcpy(to, &half, sizeof(half));
  }
}

// Values of very different sizes, so that their sum depends on the order of addition.
Bytes random_elements(DType dtype, size_t count, unsigned seed) {
  std::minstd_rand random(seed * 7919 + 1);
  Bytes bytes(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(random()) / 1073741824.0f - 1.0f;
    from_float(dtype, random() % 3 == 0 ? value * 1e3f : value, &bytes[i * size_of(dtype)]);
  }
  return bytes;
}

Bytes random_bytes(size_t count, unsigned seed) {
  std::minstd_rand random(seed * 104729 + 1);
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() >> 8);
  return bytes;
}

// Bits that a floating point number would not keep on its way: words of ones among others.
Bytes random_bits(size_t count, unsigned seed) {
  Bytes bytes = random_bytes(count, seed);
  for (size_t at = 0; at + 8 <= count; at += 24)
    std::fill_n(bytes.begin() + at, 8, std::byte{0xff});
  return bytes;
}

Bytes random_content(DType dtype, size_t count, unsigned seed) {
  return is_floating(dtype) ? random_bytes(count, seed) : random_bits(count, seed);
}

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

// Each rank's part of a matrix: rows of `columns` elements, `stride` apart.
struct Strided {
  DType dtype;
  int64_t rows, columns, stride;

  size_t row_bytes() const { return static_cast<size_t>(columns) * size_of(dtype); }
  size_t bytes() const { return static_cast<size_t>(rows * stride) * size_of(dtype); }
  Tensor on(std::byte* memory) const {
    return Tensor(memory, dtype, {rows, stride}).columns(0, columns);
  }

  std::vector<Bytes> random_inputs(int ranks) const {
    std::vector<Bytes> inputs;
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(random_content(dtype, bytes(), static_cast<unsigned>(columns + r)));
    }
    return inputs;
  }

  // These rows of all inputs, side by side.
  Bytes gathered(const std::vector<Bytes>& inputs, const RowShare& share) const {
    Bytes all;
    for (int64_t i = share.begin; i < share.end; ++i) {
      for (const Bytes& input : inputs) {
        const auto from = input.begin() + i * stride * static_cast<int64_t>(size_of(dtype));
        all.insert(all.end(), from, from + static_cast<int64_t>(row_bytes()));
      }
    }
    return all;
  }
};
void PrintTo(const Strided& c, std::ostream* out) {
  *out << name_of(c.dtype) << " " << c.rows << " x " << c.columns;
}

TEST_P(NcclCommunicators, GatherColumnsOfStridedRows) {
  const std::vector<Strided> cases = {{DType::kFloat32, 1, 4, 4},
                                      {DType::kFloat32, 3, 5, 8},
                                      {DType::kBFloat16, 7, 3, 3},
                                      {DType::kFloat32, 2, 37984, 37984},
                                      {DType::kFloat32, 5, 1000, 1024},
                                      {DType::kFloat32, 4, 12, 12},
                                      {DType::kFloat16, 33, 4001, 4001},
                                      {DType::kFloat32, 5, 700000, 700000},
                                      {DType::kFloat8E4M3, 3, 1000003, 1000003},
                                      {DType::kInt32, 1, 32, 32},
                                      {DType::kInt32, 3, 5, 9},
                                      {DType::kInt64, 4, 12, 12},
                                      {DType::kUInt8, 7, 33, 35},
                                      {DType::kInt32, 5, 700000, 700000}};
  const size_t half = size_t{16} << 20;
  run(half * static_cast<size_t>(1 + size()), [&](Rank& rank) {
    const int own = rank.comm().rank();
    std::byte* output = rank.memory() + half;
    for (const Strided& c : cases) {
      if (c.bytes() * static_cast<size_t>(size()) > max_bytes()) continue;
      const std::vector<Bytes> inputs = c.random_inputs(size());
      const Bytes expected = c.gathered(inputs, RowShare(c.rows, 0, 1));
      rank.upload(rank.memory(), inputs[static_cast<size_t>(own)]);
      rank.poison(output, expected.size());
      rank.comm().all_gather_columns(
          rank.stream(), c.on(rank.memory()),
          Tensor(output, c.dtype, {c.rows, c.columns * rank.comm().size()}));
      EXPECT_TRUE(rank.download(expected.size(), output) == expected) << testing::PrintToString(c);
    }
  });
}

TEST_P(NcclCommunicators, GatherColumnsInTheirPlace) {
  run(size_t{1} << 20, [&](Rank& rank) {
    const auto ranks = static_cast<int64_t>(rank.comm().size());
    for (const int64_t columns : {1, 5, 8, 1001}) {
      const auto bytes = static_cast<size_t>(columns) * sizeof(float);
      Bytes expected;
      for (int r = 0; r < size(); ++r) {
        const Bytes of_rank = random_elements(DType::kFloat32, static_cast<size_t>(columns),
                                              static_cast<unsigned>(columns + r));
        expected.insert(expected.end(), of_rank.begin(), of_rank.end());
      }
      std::byte* own = rank.memory() + static_cast<size_t>(rank.comm().rank()) * bytes;
      const auto from = expected.begin() + (own - rank.memory());
      rank.poison(rank.memory(), expected.size());
      rank.upload(own, Bytes(from, from + static_cast<int64_t>(bytes)));
      rank.comm().all_gather_columns(rank.stream(), Tensor(own, DType::kFloat32, {1, columns}),
                                     Tensor(rank.memory(), DType::kFloat32, {1, columns * ranks}));
      EXPECT_TRUE(rank.download(expected.size(), rank.memory()) == expected) << columns;
    }
  });
}

// Large ones go in pieces; the last rank may have no rows of a piece.
TEST_P(NcclCommunicators, SendEachRankItsShareOfTheRows) {
  const std::vector<Strided> cases = {{DType::kFloat32, 12, 5, 8},
                                      {DType::kFloat32, 13, 1000, 1000},
                                      {DType::kBFloat16, 33, 7, 7},
                                      {DType::kFloat16, 21, 4001, 4008},
                                      {DType::kFloat32, 13, 700000, 700000},
                                      {DType::kFloat8E4M3, 14, 1000003, 1000003},
                                      {DType::kInt32, 13, 6, 8},
                                      {DType::kUInt8, 14, 1000003, 1000003}};
  const size_t half = size_t{64} << 20;
  run(half * static_cast<size_t>(1 + size()), [&](Rank& rank) {
    const int own = rank.comm().rank();
    std::byte* output = rank.memory() + half;
    for (const Strided& c : cases) {
      if (c.bytes() * static_cast<size_t>(size()) > max_bytes()) continue;
      const std::vector<Bytes> inputs = c.random_inputs(size());
      const RowShare share(c.rows, own, size());
      const Bytes expected = c.gathered(inputs, share);
      const size_t beyond = c.row_bytes();
      for (int repeat = 0; repeat < 3; ++repeat) {
        rank.upload(rank.memory(), inputs[static_cast<size_t>(own)]);
        rank.poison(output, expected.size() + beyond);
        rank.comm().all_to_all_columns(
            rank.stream(), c.on(rank.memory()),
            Tensor(output, c.dtype, {share.size(), c.columns * rank.comm().size()}));
        const Bytes got = rank.download(expected.size() + beyond, output);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.begin()))
            << testing::PrintToString(c);
        EXPECT_TRUE(std::all_of(got.begin() + static_cast<int64_t>(expected.size()), got.end(),
                                [](std::byte b) { return b == std::byte{0xa5}; }));
      }
    }
  });
}

TEST_P(NcclCommunicators, BroadcastFromEveryRoot) {
  run(size_t{32} << 20, [&](Rank& rank) {
    for (const size_t bytes : {1, 4, 15, 16, 17, 4096, 100001, 20'000'000}) {
      if (bytes > max_bytes()) continue;
      for (int root = 0; root < rank.comm().size(); ++root) {
        for (const DType dtype : {DType::kFloat8E4M3, DType::kUInt8}) {
          const Bytes expected = random_content(dtype, bytes, static_cast<unsigned>(bytes) + 1);
          if (rank.comm().rank() == root) {
            rank.upload(rank.memory(), expected);
          } else {
            rank.poison(rank.memory(), bytes);
          }
          rank.comm().broadcast(rank.stream(), vector_of(rank.memory(), dtype, bytes), root);
          EXPECT_TRUE(rank.download(bytes, rank.memory()) == expected)
              << bytes << " bytes of " << name_of(dtype) << " from rank " << root;
        }
      }
    }
  });
}

// Around a ring, so that each rank sends to one and receives from another.
TEST_P(NcclCommunicators, SendAndReceive) {
  const bool has_nccl = devices()[0] != devices()[1];
  run(size_t{16} << 20, [&](Rank& rank) {
    const int own = rank.comm().rank();
    const int next = (own + 1) % size();
    const int previous = (own + size() - 1) % size();
    for (const size_t count : {1, 7, 4096, 1'000'003}) {
      const Tensor tensor = vector_of(rank.memory(), DType::kInt32, count);
      const auto bits_of = [&](int sender) {
        return random_bits(count * sizeof(int32_t), static_cast<unsigned>(count + sender));
      };
      if (!has_nccl) {
        EXPECT_THROW(rank.comm().send(rank.stream(), tensor, next), Error);
        EXPECT_THROW(rank.comm().receive(rank.stream(), tensor, previous), Error);
        continue;
      }
      rank.upload(rank.memory(), bits_of(own));
      // A ring of ranks that all send first would wait for ever.
      if (own == 0) rank.comm().send(rank.stream(), tensor, next);
      const Tensor got = vector_of(rank.memory() + (size_t{8} << 20), DType::kInt32, count);
      rank.comm().receive(rank.stream(), got, previous);
      if (own != 0) rank.comm().send(rank.stream(), tensor, next);
      EXPECT_TRUE(rank.download(count * sizeof(int32_t), static_cast<std::byte*>(got.raw())) ==
                  bits_of(previous))
          << count;
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
