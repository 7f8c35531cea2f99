#include "dist/communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "quire/error.h"

namespace quire {
namespace {

// Runs body(communicator, stream) on one thread a rank.
void run_ranks(int size, const std::function<void(Communicator&, Stream&)>& body) {
  auto ranks = make_local_communicators(size);
  std::vector<std::thread> threads;
  threads.reserve(ranks.size());
  for (auto& rank : ranks) {
    threads.emplace_back([&body, &rank] {
      ThreadPool pool(1);
      Stream stream(pool);
      body(*rank, stream);
    });
  }
  for (auto& thread : threads) thread.join();
}

// Values whose sum depends on the order of addition.
float value_of(int rank, int64_t i) {
  return (rank % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(1 + (i * 7 + rank * 13) % 101) *
         (rank % 3 == 0 ? 1e6f : 1e-3f);
}

TEST(SingleCommunicator, LeavesTensorsAlone) {
  auto comm = make_single_communicator();
  EXPECT_EQ(comm->rank(), 0);
  EXPECT_EQ(comm->size(), 1);
  ThreadPool pool(1);
  Stream stream(pool);
  std::vector<float> in{1, 2, 3, 4}, out(4);
  comm->all_reduce_sum(stream, Tensor(in.data(), DType::kFloat32, {4}));
  comm->all_gather_columns(stream, Tensor(in.data(), DType::kFloat32, {2, 2}),
                           Tensor(out.data(), DType::kFloat32, {2, 2}));
  EXPECT_EQ(out, (std::vector<float>{1, 2, 3, 4}));
}

TEST(RowShare, SplitsRowsEvenlyAndInOrder) {
  for (const int size : {1, 2, 3, 4, 8}) {
    for (const int64_t rows : {0, 1, 3, 4, 5, 12, 13, 256, 1001}) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const RowShare share(rows, rank, size);
        EXPECT_EQ(share.begin, next);
        EXPECT_GE(share.size(), 0);
        EXPECT_LE(share.size(), RowShare::rows_each(rows, size));
        if (share.size() > 0) {
          EXPECT_EQ(share.begin, rank * RowShare::rows_each(rows, size));
        }
        next = share.end;
      }
      EXPECT_EQ(next, rows);
    }
  }
}

class LocalCommunicators : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, LocalCommunicators, ::testing::Values(1, 2, 3, 5));

TEST_P(LocalCommunicators, AllReduceSumsInRankOrderOnEveryRank) {
  const int size = GetParam();
  for (const int64_t n : {1, 2, 3, 1000, 100000}) {
    std::vector<float> expected(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      float sum = value_of(0, i);
      for (int r = 1; r < size; ++r) sum += value_of(r, i);
      expected[static_cast<size_t>(i)] = sum;
    }
    run_ranks(size, [&](Communicator& comm, Stream& stream) {
      std::vector<float> data(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) data[static_cast<size_t>(i)] = value_of(comm.rank(), i);
      comm.all_reduce_sum(stream, Tensor(data.data(), DType::kFloat32, {n}));
      EXPECT_EQ(data, expected);
    });
  }
}

TEST_P(LocalCommunicators, GathersColumnsOfStridedRows) {
  run_ranks(GetParam(), [](Communicator& comm, Stream& stream) {
    std::vector<int32_t> data(3 * 4, -1);
    const Tensor input = Tensor(data.data(), DType::kInt32, {3, 4}).columns(1, 3);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        input.row<int32_t>(row)[column] =
            static_cast<int32_t>(100 * row + 2 * comm.rank() + column);
      }
    }
    std::vector<int32_t> gathered(static_cast<size_t>(3 * 2 * comm.size()));
    comm.all_gather_columns(stream, input,
                            Tensor(gathered.data(), DType::kInt32, {3, 2 * comm.size()}));
    for (int row = 0; row < 3; ++row) {
      for (int column = 0; column < 2 * comm.size(); ++column) {
        EXPECT_EQ(gathered[static_cast<size_t>(row * 2 * comm.size() + column)],
                  100 * row + column);
      }
    }
  });
}

TEST_P(LocalCommunicators, BroadcastsFromAnyRoot) {
  run_ranks(GetParam(), [](Communicator& comm, Stream& stream) {
    for (int root = 0; root < comm.size(); ++root) {
      std::vector<float> data(5, static_cast<float>(comm.rank()));
      comm.broadcast(stream, Tensor(data.data(), DType::kFloat32, {5}), root);
      EXPECT_EQ(data, std::vector<float>(5, static_cast<float>(root)));
    }
  });
}

TEST_P(LocalCommunicators, SendInOrderToTheNextRank) {
  run_ranks(GetParam(), [](Communicator& comm, Stream& stream) {
    if (comm.size() == 1) return;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (int i = 0; i < 100; ++i) {
      std::vector<int32_t> sent{comm.rank(), i, -1};
      std::vector<int32_t> received(3);
      comm.send(stream, Tensor(sent.data(), DType::kInt32, {3}), next);
      sent.assign(3, 0);  // what was sent is a copy
      comm.receive(stream, Tensor(received.data(), DType::kInt32, {3}), previous);
      ASSERT_EQ(received, (std::vector<int32_t>{previous, i, -1}));
    }
  });
}

TEST(LocalCommunicatorsSend, DoesNotWaitForTheReceiver) {
  run_ranks(2, [](Communicator& comm, Stream& stream) {
    const int other = 1 - comm.rank();
    for (int64_t i = 0; i < 20; ++i) comm.send(stream, Tensor(&i, DType::kInt64, {1}), other);
    for (int64_t i = 0; i < 20; ++i) {
      int64_t received = -1;
      comm.receive(stream, Tensor(&received, DType::kInt64, {1}), other);
      EXPECT_EQ(received, i);
    }
  });
}

TEST(LocalCommunicatorsSend, TakesTensorsOfAnySizesInTurn) {
  run_ranks(2, [](Communicator& comm, Stream& stream) {
    for (const int64_t length : {3, 0, 1000, 1, 50'000, 2}) {
      std::vector<int64_t> values(static_cast<size_t>(length), length);
      const Tensor tensor(values.data(), DType::kInt64, {length});
      if (comm.rank() == 0) {
        comm.send(stream, tensor, 1);
        continue;
      }
      std::fill(values.begin(), values.end(), -1);
      comm.receive(stream, tensor, 0);
      EXPECT_EQ(values, std::vector<int64_t>(static_cast<size_t>(length), length));
    }
  });
}

TEST(LocalCommunicatorsSend, LeavesOtherRanksAlone) {
  run_ranks(3, [](Communicator& comm, Stream& stream) {
    int64_t value = comm.rank();
    const Tensor tensor(&value, DType::kInt64, {1});
    // There and back between ranks 0 and 2, while rank 1 waits for all.
    if (comm.rank() == 0) comm.send(stream, tensor, 2);
    if (comm.rank() == 2) {
      int64_t other = -1;
      comm.receive(stream, Tensor(&other, DType::kInt64, {1}), 0);
      EXPECT_EQ(other, 0);
      comm.send(stream, tensor, 0);
    }
    if (comm.rank() == 0) {
      comm.receive(stream, tensor, 2);
      EXPECT_EQ(value, 2);
    }
    comm.barrier();
  });
}

TEST_P(LocalCommunicators, ManyCollectivesInARowStayInStep) {
  run_ranks(GetParam(), [](Communicator& comm, Stream& stream) {
    for (int i = 0; i < 300; ++i) {
      float value = static_cast<float>(i + comm.rank());
      comm.all_reduce_sum(stream, Tensor(&value, DType::kFloat32, {1}));
      const int n = comm.size();
      const int ranks_before = n * (n - 1) / 2;
      ASSERT_EQ(value, static_cast<float>(i * n + ranks_before));
      if (i % 7 == 0) comm.barrier();
    }
  });
}

TEST(LocalCommunicatorsAbort, WakesWaitingRanksWithAnError) {
  run_ranks(3, [](Communicator& comm, Stream& stream) {
    float value = 1.0f;
    const Tensor tensor(&value, DType::kFloat32, {1});
    comm.all_reduce_sum(stream, tensor);
    if (comm.rank() == 1) {
      comm.abort();
      return;
    }
    EXPECT_THROW(comm.all_reduce_sum(stream, tensor), Error);
    EXPECT_THROW(comm.barrier(), Error);
  });
}

TEST(LocalCommunicatorsAbort, WakesRanksThatReceiveAndEndsSending) {
  run_ranks(3, [](Communicator& comm, Stream& stream) {
    float value = 1.0f;
    const Tensor tensor(&value, DType::kFloat32, {1});
    if (comm.rank() == 0) {
      EXPECT_THROW(comm.receive(stream, tensor, 1), Error);
    } else if (comm.rank() == 1) {
      comm.abort();
      EXPECT_THROW(comm.send(stream, tensor, 0), Error);
    } else {
      EXPECT_THROW(comm.receive(stream, tensor, 1), Error);
    }
  });
}

TEST(LocalCommunicatorsAbort, WakesRanksThatHaveGoneToSleep) {
  run_ranks(2, [](Communicator& comm, Stream&) {
    if (comm.rank() == 0) {
      EXPECT_THROW(comm.barrier(), Error);
    } else {
      // Long enough for rank 0 to have stopped spinning; right either way.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      comm.abort();
    }
  });
}

}  // namespace
}  // namespace quire
