#include "cluster/node_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "cluster/cluster_test_util.h"

namespace quire {
namespace {

// Values whose sum depends on the order of addition.
float addend_of(int rank, int64_t i) {
  return (rank % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(1 + (i * 7 + rank * 13) % 101) *
         (rank % 3 == 0 ? 1e6f : 1e-3f);
}

// Runs body(communicator, stream) on a thread for each of 4 ranks, 2 on each of 2 nodes.
void run_ranks_on_nodes(const std::function<void(Communicator&, Stream&)>& body) {
  const std::vector<int> ranks = {0, 1, 2, 3};
  const auto errors = cluster::run_nodes(
      2,
      [&](const std::shared_ptr<cluster::NodeGroup>& nodes) {
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 4; ++rank) {
          if (nodes->node_of_rank(rank) != nodes->node()) continue;
          threads.emplace_back([&, rank] {
            ThreadPool pool(1);
            Stream stream(pool);
            body(*make_node_communicator(nodes, 0, ranks, rank), stream);
          });
        }
        for (std::thread& thread : threads) thread.join();
      },
      [](cluster::JoinOptions& options) {
        options.node_of_rank = {0, 0, 1, 1};
      });
  EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
}

TEST(NodeCommunicator, AddsInRankOrder) {
  for (const int64_t n : {1, 3, 1000, 100001}) {
    run_ranks_on_nodes([&](Communicator& comm, Stream& stream) {
      EXPECT_EQ(comm.size(), 4);
      std::vector<float> data(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) data[static_cast<size_t>(i)] = addend_of(comm.rank(), i);
      comm.all_reduce_sum(stream, Tensor(data.data(), DType::kFloat32, {n}));
      for (int64_t i = 0; i < n; ++i) {
        float sum = addend_of(0, i);
        for (int r = 1; r < 4; ++r) sum += addend_of(r, i);
        ASSERT_EQ(data[static_cast<size_t>(i)], sum) << "element " << i << " of " << n;
      }
    });
  }
}

TEST(NodeCommunicator, GathersColumnsAlsoIntoTheirOwnPlace) {
  run_ranks_on_nodes([](Communicator& comm, Stream& stream) {
    std::vector<float> out(3 * 8);
    const Tensor output(out.data(), DType::kFloat32, {3, 8});
    const Tensor own = output.columns(comm.rank() * 2, comm.rank() * 2 + 2);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t column = 0; column < 2; ++column) {
        own.data<float>()[row * own.row_stride() + column] =
            static_cast<float>(100 * comm.rank() + 10 * row + column);
      }
    }
    comm.all_gather_columns(stream, own, output);
    for (int64_t row = 0; row < 3; ++row) {
      for (int64_t column = 0; column < 8; ++column) {
        const int64_t rank = column / 2;
        EXPECT_EQ(out[static_cast<size_t>(row * 8 + column)],
                  static_cast<float>(100 * rank + 10 * row + column % 2));
      }
    }
  });
}

TEST(NodeCommunicator, HandsTensorsFromRankToRank) {
  run_ranks_on_nodes([](Communicator& comm, Stream& stream) {
    std::vector<int32_t> ids(5, comm.rank());
    const Tensor tensor(ids.data(), DType::kInt32, {5});
    comm.broadcast(stream, tensor, 2);
    EXPECT_EQ(ids, std::vector<int32_t>(5, 2));
    ids.assign(5, comm.rank());
    comm.barrier();
    const int next = (comm.rank() + 1) % 4;
    const int previous = (comm.rank() + 3) % 4;
    comm.send(stream, tensor, next);
    comm.receive(stream, tensor, previous);
    EXPECT_EQ(ids, std::vector<int32_t>(5, previous));
  });
}

TEST(NodeCommunicator, TellsAllNodesHowTheGpusOfAGroupMeet) {
  const std::vector<std::byte> id = {std::byte{7}, std::byte{0}, std::byte{255}};
  std::atomic<int> num_made = 0;
  const auto errors = cluster::run_nodes(
      3,
      [&](const std::shared_ptr<cluster::NodeGroup>& nodes) {
        const auto make = [&] {
          ++num_made;
          return id;
        };
        // Its first rank is on node 1.
        EXPECT_EQ(share_group_id(*nodes, 0, {2, 0, 4, 1, 3, 5}, make), id);
      },
      [](cluster::JoinOptions& options) { options.node_of_rank = {0, 0, 1, 1, 2, 2}; });
  EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
  EXPECT_EQ(num_made, 1);
}

TEST(NodeCommunicator, TellsAllNodesWhatEachRankSays) {
  const std::vector<int> ranks = {2, 0, 4, 1, 3};
  const auto errors = cluster::run_nodes(
      3,
      [&](const std::shared_ptr<cluster::NodeGroup>& nodes) {
        for (int round = 0; round < 3; ++round) {
          std::vector<std::byte> mine;
          std::vector<std::byte> expected;
          for (const int rank : ranks) {
            const std::vector<std::byte> said(static_cast<size_t>(round),
                                              static_cast<std::byte>(10 * rank + round));
            expected.insert(expected.end(), said.begin(), said.end());
            if (nodes->node_of_rank(rank) != nodes->node()) continue;
            mine.insert(mine.end(), said.begin(), said.end());
          }
          EXPECT_EQ(exchange_among_ranks(*nodes, 0, ranks, mine), expected);
        }
      },
      [](cluster::JoinOptions& options) {
        options.node_of_rank = {0, 0, 1, 1, 2};
      });
  EXPECT_THAT(errors, testing::Each(testing::IsEmpty()));
}

}  // namespace
}  // namespace quire
