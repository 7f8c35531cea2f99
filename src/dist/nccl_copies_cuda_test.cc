// The collectives of a group of GPUs that only copy: gathers, broadcasts, sends.
#include <cstring>
#include <ostream>

#include "dist/nccl_cuda_test_util.h"

namespace quire {
namespace {

using namespace nccl_test;  // NOLINT(google-build-using-namespace)

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

}  // namespace
}  // namespace quire
