// Ranks on one device check the kernels where there is a single GPU; NCCL takes part only where
// each rank has a device of its own.
#include "dist/nccl_cuda.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "base/thread_pool.h"
#include "core/check_cuda.h"
#include "core/device_stream_cuda.h"
#include "core/stream.h"
#include "dist/peer_memory_cuda.h"
#include "quire/error.h"

namespace quire {
namespace {

using Bytes = std::vector<std::byte>;

int num_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Collectives call no op, so nobody looks at the stream's table of them.
const ops::CudaKernels& no_kernels() {
  alignas(std::max_align_t) static constexpr std::byte kNothing = {};
  return reinterpret_cast<const ops::CudaKernels&>(kNothing);
}

// One rank's ends of the test. Device memory is taken before the first collective and given back
// when all ranks are done: freeing waits for the device, which may wait for another rank.
class Rank {
 public:
  Rank(Communicator& comm, int device, size_t bytes)
      : comm_(comm),
        queue_(make_cuda_device_stream(device)),
        stream_(pool_, {.type = DeviceType::kCuda, .index = device}, *queue_, no_kernels()) {
    check_cuda(cudaMalloc(&memory_, bytes), "allocating a test's memory");
  }
  ~Rank() { cudaFree(memory_); }

  Communicator& comm() { return comm_; }
  Stream& stream() { return stream_; }
  DeviceStream& queue() { return *queue_; }
  std::byte* memory() { return static_cast<std::byte*>(memory_); }

  // Copies of pageable memory wait for their stream, and may keep others from launching: so only
  // when this rank waits for nobody.
  void upload(std::byte* to, const Bytes& bytes) {
    queue_->synchronize();
    check_cuda(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
               "uploading a test's data");
    // The copy may still be under way, and the rank's stream does not wait for it.
    check_cuda(cudaStreamSynchronize(nullptr), "uploading a test's data");
  }
  void poison(std::byte* to, size_t bytes) {
    check_cuda(cudaMemsetAsync(to, 0xa5, bytes, stream_.cuda().get()), "poisoning an output");
  }
  Bytes download(size_t bytes, const std::byte* from) {
    Bytes result(bytes);
    queue_->synchronize();
    check_cuda(cudaMemcpy(result.data(), from, bytes, cudaMemcpyDeviceToHost),
               "downloading a test's data");
    return result;
  }

 private:
  Communicator& comm_;
  ThreadPool pool_{1};
  std::unique_ptr<DeviceStream> queue_;
  Stream stream_;
  void* memory_ = nullptr;
};

// Runs body(rank) on one thread a rank, each with `bytes` of device memory. Returns what they
// threw.
std::vector<std::string> run_ranks(const std::vector<int>& devices, size_t bytes,
                                   const std::function<void(Rank&)>& body) {
  auto comms = make_nccl_communicators(devices);
  std::vector<std::string> errors(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      Rank rank(*comms[r], devices[r], bytes);
      try {
        rank.comm().barrier();
        body(rank);
        rank.queue().synchronize();
        rank.comm().barrier();
      } catch (const Error& error) {
        errors[r] = error.what();
        rank.comm().abort();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

struct Devices {
  std::string name;
  std::vector<int> indices;
};
void PrintTo(const Devices& devices, std::ostream* out) {
  *out << devices.name;
}

class NcclCommunicators : public testing::TestWithParam<Devices> {
 protected:
  void SetUp() override {
    for (const int device : GetParam().indices) {
      if (device >= num_gpus()) {
        GTEST_SKIP() << "There are " << num_gpus() << " GPUs; this takes " << device + 1
                     << " or more.";
      }
    }
  }
  const std::vector<int>& devices() const { return GetParam().indices; }
  int size() const { return static_cast<int>(devices().size()); }
  // Kernels that wait for each other have to fit their device at once, which large blocks of
  // several ranks don't.
  size_t max_bytes() const {
    const bool is_one_device = devices()[0] == devices()[1];
    return is_one_device ? size_t{768} << 10 : size_t{1} << 30;
  }
  void run(size_t bytes, const std::function<void(Rank&)>& body) {
    for (const std::string& error : run_ranks(devices(), bytes, body)) EXPECT_EQ(error, "");
  }
};
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

Bytes sum_in_rank_order(DType dtype, const std::vector<Bytes>& inputs) {
  Bytes sums(inputs[0].size());
  for (size_t at = 0; at < sums.size(); at += size_of(dtype)) {
    float sum = to_float(dtype, &inputs[0][at]);
    for (size_t r = 1; r < inputs.size(); ++r) sum += to_float(dtype, &inputs[r][at]);
    from_float(dtype, sum, &sums[at]);
  }
  return sums;
}

Tensor vector_of(std::byte* data, DType dtype, size_t count) {
  return Tensor(data, dtype, {static_cast<int64_t>(count)});
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
                       Case{DType::kBFloat16, 14, 8192}, Case{DType::kFloat32, 5, 1100}}) {
    const size_t count = c.rows * c.n;
    const size_t bytes = count * size_of(c.dtype);
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
      rank.upload(x, inputs[static_cast<size_t>(rank.comm().rank())]);
      rank.upload(r, residual);
      rank.upload(w, weight);
      const auto rows = static_cast<int64_t>(c.rows);
      const auto n = static_cast<int64_t>(c.n);
      const Tensor in(x, c.dtype, {rows, n});
      ASSERT_TRUE(
          rank.comm().all_reduce_add_norm(rank.stream(), {.x = in,
                                                          .residual = Tensor(r, c.dtype, {rows, n}),
                                                          .weight = Tensor(w, DType::kFloat32, {n}),
                                                          .eps = kEps,
                                                          .out = in}));
      EXPECT_TRUE(rank.download(bytes, r) == new_residual) << c.rows << " x " << c.n;
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

TEST_P(NcclCommunicators, GatherColumnsOfStridedRows) {
  struct Case {
    DType dtype;
    int64_t rows, columns, stride;
  };
  const std::vector<Case> cases = {{DType::kFloat32, 1, 4, 4},
                                   {DType::kFloat32, 3, 5, 8},
                                   {DType::kBFloat16, 7, 3, 3},
                                   {DType::kFloat32, 2, 37984, 37984},
                                   {DType::kFloat32, 5, 1000, 1024},
                                   {DType::kFloat32, 4, 12, 12},
                                   {DType::kFloat16, 33, 4001, 4001},
                                   {DType::kFloat32, 5, 700000, 700000},
                                   {DType::kFloat8E4M3, 3, 1000003, 1000003}};
  const size_t half = size_t{16} << 20;
  run(half * static_cast<size_t>(1 + size()), [&](Rank& rank) {
    const int own = rank.comm().rank();
    std::byte* output = rank.memory() + half;
    for (const Case& c : cases) {
      const size_t element = size_of(c.dtype);
      const size_t row = static_cast<size_t>(c.columns) * element;
      const size_t input_bytes = static_cast<size_t>(c.rows * c.stride) * element;
      if (input_bytes * static_cast<size_t>(size()) > max_bytes()) continue;
      std::vector<Bytes> inputs;
      for (int r = 0; r < rank.comm().size(); ++r) {
        inputs.push_back(random_bytes(input_bytes, static_cast<unsigned>(c.columns + r)));
      }
      Bytes expected;
      for (int64_t i = 0; i < c.rows; ++i) {
        for (const Bytes& input : inputs) {
          const auto from = input.begin() + i * c.stride * static_cast<int64_t>(element);
          expected.insert(expected.end(), from, from + static_cast<int64_t>(row));
        }
      }
      rank.upload(rank.memory(), inputs[static_cast<size_t>(own)]);
      rank.poison(output, expected.size());
      rank.comm().all_gather_columns(
          rank.stream(), Tensor(rank.memory(), c.dtype, {c.rows, c.stride}).columns(0, c.columns),
          Tensor(output, c.dtype, {c.rows, c.columns * rank.comm().size()}));
      EXPECT_TRUE(rank.download(expected.size(), output) == expected)
          << name_of(c.dtype) << " " << c.rows << " x " << c.columns;
    }
  });
}

TEST_P(NcclCommunicators, BroadcastFromEveryRoot) {
  run(size_t{32} << 20, [&](Rank& rank) {
    for (const size_t bytes : {1, 4, 15, 16, 17, 4096, 100001, 20'000'000}) {
      if (bytes > max_bytes()) continue;
      for (int root = 0; root < rank.comm().size(); ++root) {
        const Bytes expected = random_bytes(bytes, static_cast<unsigned>(bytes) + 1);
        if (rank.comm().rank() == root) {
          rank.upload(rank.memory(), expected);
        } else {
          rank.poison(rank.memory(), bytes);
        }
        rank.comm().broadcast(rank.stream(), vector_of(rank.memory(), DType::kFloat8E4M3, bytes),
                              root);
        EXPECT_TRUE(rank.download(bytes, rank.memory()) == expected)
            << bytes << " bytes from rank " << root;
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

TEST_P(NcclCommunicators, AreTheOnlyGroupOfTheirDevices) {
  const std::vector<int> overlapping = {devices().back(), devices().back()};
  auto first = make_nccl_communicators(devices());
  EXPECT_THROW(make_nccl_communicators(overlapping), Error);
  EXPECT_NO_THROW(make_nccl_communicators(std::vector{devices()[0]}));
  first.resize(1);
  EXPECT_THROW(make_nccl_communicators(overlapping), Error);
  first.clear();
  EXPECT_NO_THROW(make_nccl_communicators(overlapping));
}

TEST_P(NcclCommunicators, AbortEndsABarrierAndWhatComesAfter) {
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

using NcclCommunicatorsDeathTest = NcclCommunicators;
INSTANTIATE_TEST_SUITE_P(Groups, NcclCommunicatorsDeathTest,
                         testing::Values(Devices{"OneDeviceTwice", {0, 0}},
                                         Devices{"TwoDevices", {0, 1}},
                                         Devices{"FourDevices", {0, 1, 2, 3}}),
                         [](const auto& info) { return info.param.name; });

TEST_P(NcclCommunicatorsDeathTest, AbortEndsWhatWaitsOnADevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(abort_while_others_wait(devices(), 1000), testing::ExitedWithCode(0), "rank 1 fails");
}

TEST_P(NcclCommunicatorsDeathTest, AbortEndsWhatWaitsInNccl) {
  if (devices()[0] == devices()[1]) GTEST_SKIP() << "This takes a device for each rank.";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(abort_while_others_wait(devices(), size_t{8} << 20), testing::ExitedWithCode(0),
              "rank 1 fails");
}

}  // namespace
}  // namespace quire
