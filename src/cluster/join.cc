// The other nodes' side of the join.
#include "cluster/join.h"

#include <fmt/format.h>

#include <optional>
#include <thread>

#include "quire/error.h"

namespace quire::cluster {
namespace {

enum class Answer { kDone, kHungUp };

// What a node has met so far, for the sentence at its time limit.
struct Attempts {
  Clock::time_point deadline;
  std::string problem;                 // of the last connection
  bool proved = false;                 // what listens there is node 0
  std::optional<std::string> awaited;  // nodes, as node 0 said last
};

Clock::duration seconds(double count) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(count));
}

std::string place_of(const JoinOptions& options) {
  return fmt::format("{}:{}", options.address, options.port);
}

[[noreturn]] void refuse_answer(const JoinOptions& options) {
  throw Error(fmt::format("What listens at {} is no node 0 of a quire group.", place_of(options)));
}

[[noreturn]] void end_waiting(const JoinOptions& options, const Attempts& attempts) {
  const std::string begin =
      fmt::format("After {:g} s (--join-timeout) node {}", options.timeout_s, options.node);
  if (attempts.awaited && !attempts.awaited->empty()) {
    throw Error(fmt::format(
        "{} still waits at node 0 ({}) for node {} of the group of {}; every node has to come "
        "within the time.",
        begin, place_of(options), *attempts.awaited, options.num_nodes));
  }
  throw Error(fmt::format(
      "{} has not reached node 0 at {}{}; --master-addr and --master-port have to be those of "
      "node 0.",
      begin, place_of(options),
      attempts.problem.empty() ? std::string() : fmt::format(" ({})", attempts.problem)));
}

// The next message of what listens there, short until that is known to be node 0.
Io receive(Connection& connection, const JoinOptions& options, const Attempts& attempts,
           Received& received) {
  if (attempts.proved) return connection.receive(received);
  try {
    return connection.receive(received, kMaxStrangersPayload);
  } catch (const Error&) {  // a web server, say, or one of SSH
    refuse_answer(options);
  }
}

// Node 0's next message, which has to be of one kind. Pings say which nodes are awaited.
Answer expect_of_node_0(Connection& connection, FrameKind kind, const JoinOptions& options,
                        Attempts& attempts, Received& received) {
  while (true) {
    switch (receive(connection, options, attempts, received)) {
      case Io::kDone:
        break;
      case Io::kClosed:
        attempts.problem = "it hung up";
        return Answer::kHungUp;
      case Io::kTimedOut:
        if (Clock::now() >= attempts.deadline) end_waiting(options, attempts);
        throw Error(fmt::format("Node 0 at {} has said nothing for {} s.", place_of(options),
                                kSilence.count()));
    }
    if (received.frame.kind != FrameKind::kPing) break;
    attempts.awaited = as_sentence(received.payload);
  }
  if (received.frame.kind == FrameKind::kRefused) throw Error(as_sentence(received.payload));
  if (received.frame.kind != kind) refuse_answer(options);
  return Answer::kDone;
}

// Both sides prove what they know, and this one says what it is.
Answer greet_node_0(Connection& connection, const JoinOptions& options, Attempts& attempts) {
  const auto hello =
      encode_hello({.node = static_cast<uint32_t>(options.node), .nonce = draw_nonce()});
  Received received;
  connection.send(FrameKind::kHello, hello);
  if (expect_of_node_0(connection, FrameKind::kChallenge, options, attempts, received) ==
      Answer::kHungUp) {
    return Answer::kHungUp;
  }
  connection.set_deadline(attempts.deadline + seconds(options.grace_s));
  const auto challenge = encode_nonce(decode_nonce(received.payload));
  const Transcript transcript(options.secret, hello, challenge);
  connection.send(FrameKind::kProof, transcript.proof_of_node());
  if (expect_of_node_0(connection, FrameKind::kProof, options, attempts, received) ==
      Answer::kHungUp) {
    return Answer::kHungUp;
  }
  if (!is_same(received.payload, transcript.proof_of_node_0())) {
    throw Error(
        fmt::format("What listens at {} does not know the group's secret (QUIRE_GROUP_SECRET).",
                    place_of(options)));
  }
  attempts.proved = true;
  if (!options.secret.empty()) {
    connection.encrypt(transcript.key_to_node_0(), transcript.key_to_node());
  }
  connection.send(FrameKind::kFacts, encode_facts(options.facts));
  return Answer::kDone;
}

// One attempt; null where nobody is there yet, or where it was hung up on.
std::unique_ptr<Connection> try_to_join(const JoinOptions& options, Attempts& attempts) {
  std::optional<Socket> socket =
      connect_to(options.address, options.port, attempts.deadline, &attempts.problem);
  if (!socket) return nullptr;
  attempts.problem = "it says nothing";
  attempts.proved = false;
  attempts.awaited.reset();
  auto connection = std::make_unique<Connection>(std::move(*socket));
  connection->set_deadline(attempts.deadline);
  if (greet_node_0(*connection, options, attempts) == Answer::kHungUp) return nullptr;
  Received received;
  if (expect_of_node_0(*connection, FrameKind::kWelcome, options, attempts, received) ==
      Answer::kHungUp) {
    return nullptr;
  }
  connection->set_deadline(std::nullopt);
  return connection;
}

}  // namespace

std::unique_ptr<Connection> join_at_door(const JoinOptions& options) {
  constexpr std::chrono::milliseconds kPause{200};
  Attempts attempts{.deadline = Clock::now() + seconds(options.timeout_s),
                    .problem = {},
                    .proved = false,
                    .awaited = {}};
  while (Clock::now() < attempts.deadline) {
    if (auto connection = try_to_join(options, attempts)) return connection;
    std::this_thread::sleep_for(kPause);
  }
  end_waiting(options, attempts);
}

}  // namespace quire::cluster
