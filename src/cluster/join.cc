// The other nodes' side of the join.
#include "cluster/join.h"

#include <fmt/format.h>

#include <optional>
#include <thread>

#include "quire/error.h"

namespace quire::cluster {
namespace {

// Node 0 measures the time-out, too, and its sentence says more.
constexpr std::chrono::seconds kGrace{5};

enum class Answer { kDone, kHungUp };

std::string place_of(const JoinOptions& options) {
  return fmt::format("{}:{}", options.address, options.port);
}

[[noreturn]] void refuse_answer(const JoinOptions& options) {
  throw Error(fmt::format("What listens at {} is no node 0 of a quire group.", place_of(options)));
}

// Node 0's next message, which has to be of one kind. Pings are ignored.
Answer expect_of_node_0(Connection& connection, FrameKind kind, const JoinOptions& options,
                        Received& received) {
  do {
    switch (connection.receive(received)) {
      case Io::kDone:
        break;
      case Io::kClosed:
        return Answer::kHungUp;
      case Io::kTimedOut:
        throw Error(fmt::format("Node 0 at {} has said nothing for {} s.", place_of(options),
                                kSilence.count()));
    }
  } while (received.frame.kind == FrameKind::kPing);
  if (received.frame.kind == FrameKind::kRefused) throw Error(as_sentence(received.payload));
  if (received.frame.kind != kind) refuse_answer(options);
  return Answer::kDone;
}

// Both sides prove what they know, and this one says what it is.
Answer greet_node_0(Connection& connection, const JoinOptions& options) {
  const auto hello =
      encode_hello({.node = static_cast<uint32_t>(options.node), .nonce = draw_nonce()});
  Received received;
  connection.send(FrameKind::kHello, hello);
  if (expect_of_node_0(connection, FrameKind::kChallenge, options, received) == Answer::kHungUp) {
    return Answer::kHungUp;
  }
  const auto challenge = encode_nonce(decode_nonce(received.payload));
  const Transcript transcript(options.secret, hello, challenge);
  connection.send(FrameKind::kProof, transcript.proof_of_node());
  if (expect_of_node_0(connection, FrameKind::kProof, options, received) == Answer::kHungUp) {
    return Answer::kHungUp;
  }
  if (!is_same(received.payload, transcript.proof_of_node_0())) {
    throw Error(
        fmt::format("What listens at {} does not know the group's secret (QUIRE_GROUP_SECRET).",
                    place_of(options)));
  }
  if (!options.secret.empty()) {
    connection.encrypt(transcript.key_to_node_0(), transcript.key_to_node());
  }
  connection.send(FrameKind::kFacts, encode_facts(options.facts));
  return Answer::kDone;
}

// One attempt; null where nobody is there yet, or where it was hung up on.
std::unique_ptr<Connection> try_to_join(const JoinOptions& options, Clock::time_point deadline) {
  std::optional<Socket> socket = connect_to(options.address, options.port, deadline);
  if (!socket) return nullptr;
  auto connection = std::make_unique<Connection>(std::move(*socket));
  connection->set_deadline(deadline + kGrace);
  if (greet_node_0(*connection, options) == Answer::kHungUp) return nullptr;
  Received received;
  if (expect_of_node_0(*connection, FrameKind::kWelcome, options, received) == Answer::kHungUp) {
    return nullptr;
  }
  connection->set_deadline(std::nullopt);
  return connection;
}

}  // namespace

std::unique_ptr<Connection> join_at_door(const JoinOptions& options) {
  constexpr std::chrono::milliseconds kPause{200};
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options.timeout_s));
  while (Clock::now() < deadline) {
    if (auto connection = try_to_join(options, deadline)) return connection;
    std::this_thread::sleep_for(kPause);
  }
  throw Error(fmt::format(
      "After {:g} s (--join-timeout) node {} has not reached node 0 at {}; --master-addr and "
      "--master-port have to be those of node 0.",
      options.timeout_s, options.node, place_of(options)));
}

}  // namespace quire::cluster
