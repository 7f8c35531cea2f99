#include "cluster/node_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/cluster_test_util.h"
#include "quire/error.h"

namespace quire::cluster {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

using NodeGroupPtr = std::shared_ptr<NodeGroup>;

std::vector<std::byte> bytes_like(const std::string& text, size_t times = 1) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < times; ++i) {
    const auto raw = std::as_bytes(std::span(text));
    bytes.insert(bytes.end(), raw.begin(), raw.end());
  }
  return bytes;
}

TEST(NodeGroup, AgreesOnTheLeastNumber) {
  const auto errors = run_nodes(3, [](const NodeGroupPtr& group) {
    EXPECT_EQ(group->num_nodes(), 3);
    EXPECT_EQ(group->agree_least(10 - group->node()), 8);
    EXPECT_EQ(group->agree_least(-5 + group->node()), -5);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, CarriesMessagesBetweenAllRanksInOrder) {
  // 3 MiB: of several parts.
  const auto long_message = bytes_like("0123456789abcdef", size_t{3} << 16);
  const auto errors = run_nodes(3, [&](const NodeGroupPtr& group) {
    const int me = group->node();
    for (int other = 0; other < 3; ++other) {
      if (other == me) continue;
      const Route to{.group = 1, .from = me, .to = other};
      group->send(to, bytes_like("first of " + std::to_string(me)));
      group->send(to, long_message);
    }
    for (int other = 0; other < 3; ++other) {
      if (other == me) continue;
      const Route from{.group = 1, .from = other, .to = me};
      auto received = bytes_like("first of x");
      group->receive(from, received);
      EXPECT_EQ(received, bytes_like("first of " + std::to_string(other)));
      std::vector<std::byte> received_long(long_message.size());
      group->receive(from, received_long);
      EXPECT_TRUE(received_long == long_message);
    }
    EXPECT_GT(group->bytes_sent(), long_message.size());
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, HandsStepsToTheOtherNodes) {
  const auto large = bytes_like("0123456789abcdef", size_t{3} << 16);
  const auto errors = run_nodes(2, [&](const NodeGroupPtr& group) {
    if (group->node() == 0) {
      group->send_batch(bytes_like("a step"));
      group->send_batch(large);
      return;
    }
    EXPECT_EQ(group->next_batch(), bytes_like("a step"));
    EXPECT_TRUE(group->next_batch() == large);
    EXPECT_EQ(group->next_batch(), std::nullopt);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, CarriesOutOrdersAndReturnsTheFirstProblem) {
  const auto errors = run_nodes(3, [&](const NodeGroupPtr& group) {
    if (group->node() == 0) {
      EXPECT_EQ(group->give_order(bytes_like("first")), "");
      EXPECT_EQ(group->give_order(bytes_like("second")), "Node 2 cannot.");
      return;
    }
    EXPECT_EQ(group->next_order(), bytes_like("first"));
    group->answer_order("");
    EXPECT_EQ(group->next_order(), bytes_like("second"));
    group->answer_order(group->node() == 2 ? "Node 2 cannot." : "");
    EXPECT_EQ(group->next_order(), std::nullopt) << "the group ends";
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, Node0HasWhatOthersHaveToldLast) {
  const auto errors = run_nodes(3, [&](const NodeGroupPtr& group) {
    if (group->node() != 0) {
      std::atomic<int> count = 0;
      group->on_report(
          [&] { return bytes_like(std::to_string(group->node()), ++count < 2 ? 1 : 2); });
      EXPECT_EQ(group->next_batch(), std::nullopt) << "the group ends";
      group->on_report({});
      return;
    }
    while (group->report_of(1) != bytes_like("11") || group->report_of(2) != bytes_like("22")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(group->report_of(0), bytes_like(""));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, FailsWhileAnOrderIsAwaited) {
  const auto errors = run_nodes(2, [&](const NodeGroupPtr& group) {
    if (group->node() == 0) {
      group->give_order(bytes_like("first"));
    } else {
      EXPECT_NE(group->next_order(), std::nullopt);
      group->fail("Node 1 has had enough.");
      throw Error("it ends");
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("Node 1 has had enough."));
}

TEST(NodeGroup, NeedsNoSecretOnLoopback) {
  const auto errors = run_nodes(
      2, [](const NodeGroupPtr& group) { EXPECT_EQ(group->agree_least(group->node()), 0); },
      [](JoinOptions& options) { options.secret.clear(); });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, FailsOnEveryNodeWithOneSentence) {
  const auto errors = run_nodes(3, [](const NodeGroupPtr& group) {
    if (group->node() == 1) group->fail("Node 1 has had enough.");
    std::vector<std::byte> never(1);
    group->receive({.group = 0, .from = 1, .to = group->node() == 0 ? 2 : 0}, never);
  });
  EXPECT_THAT(errors, Each(HasSubstr("Node 1 has had enough.")));
}

TEST(NodeGroup, NoticesANodeThatHasGone) {
  std::vector<std::byte> never(1);
  const auto errors = run_nodes(3, [&](const NodeGroupPtr& group) {
    if (group->node() == 2) throw Error("gone");  // without a word to the others
    std::vector<std::byte> byte(1);
    group->receive({.group = 0, .from = 2, .to = group->node()}, byte);
  });
  EXPECT_THAT(errors[0], HasSubstr("node 2 has gone"));
  EXPECT_THAT(errors[1], HasSubstr("node 2 has gone"));
}

TEST(NodeGroup, CallsBackWhenItFails) {
  const auto errors = run_nodes(2, [](const NodeGroupPtr& group) {
    std::atomic<int> calls = 0;
    group->on_failure([&] { ++calls; });
    if (group->node() == 1) group->fail("It ends.");
    std::vector<std::byte> never(1);
    EXPECT_THROW(group->receive({.from = 1 - group->node(), .to = group->node()}, never), Error);
    group->on_failure({});
    // Where it has failed, at once.
    int late_calls = 0;
    group->on_failure([&] { ++late_calls; });
    EXPECT_EQ(late_calls, 1);
    group->on_failure({});
    EXPECT_LE(calls, 1);
  });
  EXPECT_THAT(errors, SizeIs(2));
}

TEST(NodeGroup, GoesOnWhereNode0IsAskedToEndIt) {
  std::promise<std::string> asked;
  const auto errors = run_nodes(2, [&](const NodeGroupPtr& group) {
    if (group->node() == 0) {
      group->on_leave([&](const std::string& sentence) { asked.set_value(sentence); });
    }
    group->agree_least(0);
    if (group->node() == 1) group->leave("Node 1 has to go.");
    if (group->node() == 0) {
      EXPECT_EQ(asked.get_future().get(), "Node 1 has to go.");
    }
    EXPECT_EQ(group->agree_least(7 + group->node()), 7);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(NodeGroup, EndsWhereNobodyOnNode0CaresForANodeThatLeaves) {
  const auto errors = run_nodes(2, [](const NodeGroupPtr& group) {
    if (group->node() == 1) group->leave("Node 1 has to go.");
    std::vector<std::byte> never(1);
    group->receive({.from = 1 - group->node(), .to = group->node()}, never);
  });
  EXPECT_THAT(errors, Each(HasSubstr("Node 1 has to go.")));
}

TEST(Join, TellsBothNodesWhichOneDiffersInWhat) {
  const auto errors = run_nodes(
      2, [](const NodeGroupPtr&) {},
      [](JoinOptions& options) {
        if (options.node == 1) options.facts[1].second = "8";
      });
  EXPECT_THAT(errors, Each(HasSubstr("Node 1 differs from node 0 in --max-num-seqs: 8 there, 4 on "
                                     "node 0; expected the same on every node.")));
}

TEST(Join, TellsBothNodesThatABuildHasOtherFacts) {
  const auto errors = run_nodes(
      2, [](const NodeGroupPtr&) {},
      [](JoinOptions& options) {
        if (options.node == 1) options.facts.pop_back();
      });
  EXPECT_THAT(errors, Each(HasSubstr("Node 1 is another build of quire than node 0; expected the "
                                     "same.")));
}

TEST(Join, TellsBothOfTwoNodesOfOneRank) {
  const auto errors = run_nodes(
      3, [](const NodeGroupPtr&) {},
      [](JoinOptions& options) {
        if (options.node == 2) options.node = 1;
      });
  EXPECT_THAT(errors, Each(HasSubstr("Two nodes came with --node-rank 1")));
}

TEST(Join, NeedsEveryNodeInTime) {
  const auto errors = run_nodes(
      1, [](const NodeGroupPtr&) {},
      [](JoinOptions& options) {
        options.num_nodes = 3;
        options.timeout_s = 0.2;
      });
  EXPECT_THAT(errors[0], HasSubstr("After 0.2 s (--join-timeout) the group of 3 nodes"));
  EXPECT_THAT(errors[0], HasSubstr("lacks node 1, 2"));
}

TEST(Join, SaysThatAPortIsInUse) {
  const Socket taken = listen_at("127.0.0.1", 0);
  EXPECT_THAT([&] { listen_at("127.0.0.1", taken.port()); },
              testing::ThrowsMessage<Error>(HasSubstr("Address already in use")));
}

TEST(Join, RefusesANameThatMeansLoopback) {
  // Another way to write 127.0.1.1, as Debian's /etc/hosts gives a machine's own name.
  EXPECT_THAT([] { listen_at("127.257", 0); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  HasSubstr("at 127.257:0: the name means 127.0.1.1 here, which other machines"),
                  HasSubstr("--master-addr"))));
}

TEST(Join, SaysThatNode0IsNotThere) {
  // A port of the system's, where nobody listens.
  const JoinOptions options{.num_nodes = 2,
                            .node = 1,
                            .address = "127.0.0.1",
                            .port = 1,
                            .timeout_s = 0.3,
                            .secret = {},
                            .facts = {},
                            .node_of_rank = {},
                            .log = {}};
  EXPECT_THAT([&] { join_at_door(options); },
              testing::ThrowsMessage<Error>(
                  HasSubstr("After 0.3 s (--join-timeout) node 1 has not reached node "
                            "0 at 127.0.0.1:1 (127.0.0.1: Connection "
                            "refused); --master-addr")));
}

// Node 1 of a group whose node 0 should be where `listener` is.
JoinOptions node_1_at(const Socket& listener) {
  return {.num_nodes = 2,
          .node = 1,
          .address = "127.0.0.1",
          .port = listener.port(),
          .timeout_s = 0.3,
          .secret = {},
          .facts = {},
          .node_of_rank = {},
          .log = {}};
}

TEST(Join, WaitsNoLongerWhereSomethingIsSilent) {
  const Socket silent = listen_at("127.0.0.1", 0);
  JoinOptions options = node_1_at(silent);
  options.grace_s = 60;
  const Clock::time_point begin = Clock::now();
  EXPECT_THAT([&] { join_at_door(options); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(HasSubstr("After 0.3 s (--join-timeout) node 1 has not reached"),
                                 HasSubstr("(it says nothing); --master-addr"))));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(30));
}

TEST(Join, SaysThatSomethingElseListensThere) {
  const Head long_challenge = encode_head({.kind = FrameKind::kChallenge, .length = kMaxPayload});
  const std::string as_text(reinterpret_cast<const char*>(long_challenge.data()),
                            long_challenge.size());
  for (const std::string& greeting : {std::string("HTTP/1.1 400 Bad Request\r\n"),
                                      std::string("SSH-2.0-OpenSSH_9.6\r\n"), as_text}) {
    const Socket listener = listen_at("127.0.0.1", 0);
    JoinOptions options = node_1_at(listener);
    options.timeout_s = 60;
    auto joined = std::async(std::launch::async, [&] { join_at_door(options); });
    const Socket node = *accept_from(listener, -1);
    node.send(std::as_bytes(std::span(greeting)), {}, std::chrono::seconds(60));
    EXPECT_THAT([&] { joined.get(); },
                testing::ThrowsMessage<Error>(HasSubstr("is no node 0 of a quire group")));
  }
}

TEST(Connection, StillKnowsTheOtherSideThatHasGone) {
  const Socket listener = listen_at("127.0.0.1", 0);
  std::optional<Socket> other =
      connect_to("127.0.0.1", listener.port(), Clock::now() + std::chrono::seconds(60));
  ASSERT_TRUE(other);
  std::optional<Socket> accepted = accept_from(listener, -1);
  const int fd = accepted->fd();
  const Connection connection(std::move(*accepted));
  other.reset();
  connection.shut_down();
  while (Socket(dup(fd)).peer() != "an unknown address") std::this_thread::yield();
  EXPECT_THAT(connection.peer(), testing::StartsWith("127.0.0.1:"));
}

// A node that has proved itself to a door, and waits there.
std::unique_ptr<Connection> enter(const JoinOptions& options) {
  auto connection = std::make_unique<Connection>(
      *connect_to(options.address, options.port, Clock::now() + std::chrono::seconds(60)));
  const auto hello =
      encode_hello({.node = static_cast<uint32_t>(options.node), .nonce = draw_nonce()});
  Received received;
  connection->send(FrameKind::kHello, hello);
  EXPECT_EQ(connection->receive(received), Io::kDone);
  const Transcript transcript(options.secret, hello, received.payload);
  connection->send(FrameKind::kProof, transcript.proof_of_node());
  EXPECT_EQ(connection->receive(received), Io::kDone);
  connection->encrypt(transcript.key_to_node_0(), transcript.key_to_node());
  connection->send(FrameKind::kFacts, encode_facts(options.facts));
  EXPECT_EQ(connection->receive(received), Io::kDone);
  EXPECT_EQ(received.frame.kind, FrameKind::kPing);
  EXPECT_EQ(as_sentence(received.payload), "2");  // the node that is awaited
  return connection;
}

// A door for three nodes, and what its node 1 needs to join.
JoinOptions node_1_of_3(std::optional<Door>& door) {
  JoinOptions options{.num_nodes = 3,
                      .node = 0,
                      .address = "127.0.0.1",
                      .port = 0,
                      .timeout_s = 60,
                      .secret = "a secret of tests",
                      .facts = {{"the model", "lexicon"}},
                      .node_of_rank = {0, 1, 2},
                      .log = {}};
  door.emplace(options);
  options.port = door->port();
  options.node = 1;
  return options;
}

TEST(Join, LetsANodeThatDiesComeAgainAtOnce) {
  std::optional<Door> door;
  const JoinOptions options = node_1_of_3(door);
  for (int i = 0; i < 3; ++i) enter(options);  // its connection ends, too
  const auto again = enter(options);
}

TEST(Join, SaysAtANodesTimeLimitWhomItWaitsFor) {
  std::optional<Door> door;
  JoinOptions options = node_1_of_3(door);
  options.timeout_s = 3;
  options.grace_s = 0;
  EXPECT_THAT([&] { join_at_door(options); },
              testing::ThrowsMessage<Error>(testing::AllOf(
                  HasSubstr("After 3 s (--join-timeout) node 1 still waits at node 0"),
                  HasSubstr("for node 2 of the group of 3"))));
}

// A connection to the door of a group that waits for one node.
class StrangerTest : public testing::Test {
 protected:
  StrangerTest() {
    options_.num_nodes = 2;
    options_.address = "127.0.0.1";
    options_.timeout_s = 60;
    options_.secret = "a secret of tests";
    options_.node_of_rank = {0, 1};
    door_.emplace(options_);
    options_.port = door_->port();
    options_.node = 1;
  }

  std::unique_ptr<Connection> knock() {
    auto socket = connect_to("127.0.0.1", options_.port, Clock::now() + std::chrono::seconds(60));
    return std::make_unique<Connection>(std::move(*socket));
  }

  // The group still comes together.
  void expect_open() {
    std::thread node([this] { EXPECT_NE(join_at_door(options_), nullptr); });
    EXPECT_THAT(door_->wait(), SizeIs(2));
    node.join();
  }

  JoinOptions options_;
  std::optional<Door> door_;
};

TEST_F(StrangerTest, BytesChangeNothing) {
  for (const std::string text :
       {"GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"}) {
    const Socket socket =
        *connect_to("127.0.0.1", options_.port, Clock::now() + std::chrono::seconds(60));
    socket.send(std::as_bytes(std::span(text)), {}, std::chrono::seconds(10));
    std::vector<std::byte> answer(1);
    EXPECT_EQ(socket.receive(answer, std::chrono::seconds(60)), Io::kClosed);
  }
  expect_open();
}

TEST_F(StrangerTest, OfAnotherVersionIsToldSo) {
  // Those of another version may have another greeting behind the version.
  for (const size_t length : {size_t{20}, size_t{48}}) {
    const auto connection = knock();
    auto hello = encode_hello({.version = kProtocolVersion + 1, .node = 1, .nonce = draw_nonce()});
    hello.resize(length);
    Received received;
    connection->send(FrameKind::kHello, hello);
    ASSERT_EQ(connection->receive(received), Io::kDone);
    EXPECT_EQ(received.frame.kind, FrameKind::kRefused);
    EXPECT_EQ(as_sentence(received.payload),
              fmt::format("A node speaks version {} of the protocol between nodes, node 0 version "
                          "{}; expected the same build of quire on every node.",
                          kProtocolVersion + 1, kProtocolVersion));
  }
  expect_open();
}

TEST_F(StrangerTest, AProofThatIsSentBackProvesNothing) {
  const auto connection = knock();
  Received received;
  connection->send(FrameKind::kHello, encode_hello({.node = 1, .nonce = draw_nonce()}));
  ASSERT_EQ(connection->receive(received), Io::kDone);
  ASSERT_EQ(received.frame.kind, FrameKind::kChallenge);
  // What node 0 would answer, were it asked the same; a node without the secret has only its bytes.
  connection->send(FrameKind::kProof, received.payload);
  ASSERT_EQ(connection->receive(received), Io::kDone);
  EXPECT_EQ(received.frame.kind, FrameKind::kRefused);
  expect_open();
}

TEST_F(StrangerTest, IsTurnedAwayWithoutTheSecret) {
  JoinOptions stranger = options_;
  stranger.secret = "another secret";
  EXPECT_THAT(
      [&] { join_at_door(stranger); },
      testing::ThrowsMessage<Error>(HasSubstr("The secret of a node (QUIRE_GROUP_SECRET)")));
  expect_open();
}

TEST_F(StrangerTest, IsNamedWhereTheGroupStaysIncomplete) {
  JoinOptions of_node_0 = options_;
  of_node_0.node = 0;
  of_node_0.port = 0;
  of_node_0.timeout_s = 0.1;  // from wait() on
  Door door(of_node_0);
  JoinOptions stranger = options_;
  stranger.port = door.port();
  stranger.secret = "another secret";
  EXPECT_THROW(join_at_door(stranger), Error);
  EXPECT_THAT([&] { door.wait(); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(HasSubstr("lacks node 1"), HasSubstr("QUIRE_GROUP_SECRET"))));
}

TEST_F(StrangerTest, ANodeThatIsLateIsToldSo) {
  expect_open();
  EXPECT_THAT([&] { join_at_door(options_); },
              testing::ThrowsMessage<Error>(HasSubstr("a node came late or twice")));
}

TEST_F(StrangerTest, ANodeThatLeavesBeforeAllAreThereMayComeAgain) {
  std::vector<std::byte> hello = encode_hello({.node = 1, .nonce = draw_nonce()});
  {
    const auto connection = knock();
    connection->send(FrameKind::kHello, hello);
  }
  expect_open();
}

}  // namespace
}  // namespace quire::cluster
