// Node 0's side of the join.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "cluster/join.h"
#include "quire/error.h"

namespace quire::cluster {
namespace {

constexpr std::chrono::seconds kGreetingLimit{10};  // for all that a newcomer says
constexpr int kMostTold = 100;                      // lines about newcomers
constexpr size_t kMaxNewcomers = 16;                // at a time

// Why a newcomer is not let in.
struct Refusal {
  std::string sentence;
};

// A newcomer's next message, which has to be of one kind.
std::vector<std::byte> expect(Connection& connection, FrameKind kind, size_t max_payload) {
  Received received;
  if (connection.receive(received, max_payload) != Io::kDone) {
    throw Error("it said too little, or too slowly");
  }
  if (received.frame.kind != kind) throw Error("it did not greet as a node does");
  return std::move(received.payload);
}

}  // namespace

class Door::Impl {
 public:
  explicit Impl(JoinOptions options)
      : options_(std::move(options)),
        listener_(listen_at(options_.address, options_.port)),
        wake_fd_(eventfd(0, EFD_CLOEXEC)),
        connections_(static_cast<size_t>(options_.num_nodes)) {
    if (wake_fd_ < 0) throw Error("The system gives no event to wake threads with.");
    acceptor_ = std::thread([this] { accept(); });
  }

  ~Impl() {
    eventfd_write(wake_fd_, 1);
    acceptor_.join();
    {
      const std::lock_guard lock(mutex_);
      for (Newcomer& newcomer : newcomers_) {
        if (newcomer.connection) newcomer.connection->shut_down();
      }
    }
    for (Newcomer& newcomer : newcomers_) newcomer.thread.join();
    close(wake_fd_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  uint16_t port() const { return listener_.port(); }
  std::vector<std::unique_ptr<Connection>> wait();

 private:
  struct Newcomer {
    std::unique_ptr<Connection> connection;  // null once it is let in
    std::thread thread;
    bool done = false;
  };

  void log(const std::string& line) const {
    if (options_.log) options_.log(line);
  }
  // The same of newcomers, who may be many.
  void log_of_newcomer(const std::string& line);
  void accept();
  // Ends the threads of newcomers that were let in or turned away. Under the mutex.
  void tidy();
  // For a place. Under the mutex.
  void hang_up_on_oldest();
  void greet(Newcomer& newcomer);
  // The node's number, once it has proved itself and its facts agree. Throws Error, Refusal.
  int check(Connection& connection, bool& proved) const;
  void let_in(int node, Newcomer& newcomer);
  void refuse(Newcomer& newcomer, const std::string& sentence, bool proved);
  std::vector<int> missing() const;
  // Whether a node is missing that is still to come. Under the mutex.
  bool lacks_nodes();
  std::string late_sentence() const;
  // Forgets those that wait no more, so that they may come again. Under the mutex.
  void forget_gone();
  // Tells those that wait whom they wait for. Under the mutex.
  void ping_waiting();

  const JoinOptions options_;
  Socket listener_;
  int wake_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::list<Newcomer> newcomers_;
  bool complete_ = false;
  std::atomic<int> num_told_ = 0;
  std::string failure_;       // ends the join
  std::string last_refusal_;  // of a newcomer that did not prove itself
  std::thread acceptor_;
};

void Door::Impl::accept() {
  while (std::optional<Socket> socket = accept_from(listener_, wake_fd_)) {
    auto connection = std::make_unique<Connection>(std::move(*socket));
    connection->set_deadline(Clock::now() + kGreetingLimit);
    const std::lock_guard lock(mutex_);
    tidy();
    if (newcomers_.size() >= kMaxNewcomers) {
      hang_up_on_oldest();
      continue;  // this one as well; a node tries again
    }
    Newcomer& newcomer = newcomers_.emplace_back();
    newcomer.connection = std::move(connection);
    try {
      newcomer.thread = std::thread([this, &newcomer] { greet(newcomer); });
    } catch (const std::system_error&) {
      newcomers_.pop_back();  // no thread is left for it; a node tries again
    }
  }
}

void Door::Impl::hang_up_on_oldest() {
  // A node needs two answers only, so the one that has been here for longest is likely a stranger
  // that says nothing.
  const auto oldest = std::ranges::find_if(
      newcomers_, [](const Newcomer& newcomer) { return !newcomer.done && newcomer.connection; });
  if (oldest != newcomers_.end()) oldest->connection->shut_down();
}

void Door::Impl::tidy() {
  std::erase_if(newcomers_, [](Newcomer& newcomer) {
    if (!newcomer.done) return false;
    newcomer.thread.join();
    return true;
  });
}

void Door::Impl::greet(Newcomer& newcomer) {
  bool proved = false;
  try {
    let_in(check(*newcomer.connection, proved), newcomer);
  } catch (const Refusal& refusal) {
    refuse(newcomer, refusal.sentence, proved);
  } catch (const std::exception& error) {
    log_of_newcomer(fmt::format("hung up on {}: {}", newcomer.connection->peer(), error.what()));
  }
  const std::lock_guard lock(mutex_);
  if (newcomer.connection) newcomer.connection->shut_down();
  newcomer.done = true;
}

int Door::Impl::check(Connection& connection, bool& proved) const {
  const auto hello_bytes = expect(connection, FrameKind::kHello, kMaxStrangersPayload);
  const Hello hello = decode_hello(hello_bytes);
  if (hello.version != kProtocolVersion) {
    throw Refusal{fmt::format(
        "A node speaks version {} of the protocol between nodes, node 0 version {}; expected the "
        "same build of quire on every node.",
        hello.version, kProtocolVersion)};
  }
  const auto challenge = encode_nonce(draw_nonce());
  connection.send(FrameKind::kChallenge, challenge);
  const Transcript transcript(options_.secret, hello_bytes, challenge);
  const auto proof = expect(connection, FrameKind::kProof, kMaxStrangersPayload);
  if (!is_same(proof, transcript.proof_of_node())) {
    throw Refusal{
        "The secret of a node (QUIRE_GROUP_SECRET) is not that of node 0; expected the same on "
        "every node."};
  }
  connection.send(FrameKind::kProof, transcript.proof_of_node_0());
  if (!options_.secret.empty()) {
    connection.encrypt(transcript.key_to_node(), transcript.key_to_node_0());
  }
  const Facts facts = decode_facts(expect(connection, FrameKind::kFacts, kMaxPayload));
  proved = true;
  const auto node = static_cast<int>(std::min<uint32_t>(hello.node, 1U << 30));
  if (std::string sentence = difference(options_.facts, facts, node); !sentence.empty()) {
    throw Refusal{as_sentence(std::as_bytes(std::span(sentence)))};
  }
  if (node < 1 || node >= options_.num_nodes) {
    throw Refusal{fmt::format("A node came with --node-rank {}; expected 1 to {}.", node,
                              options_.num_nodes - 1)};
  }
  return node;
}

std::string Door::Impl::late_sentence() const {
  return fmt::format("The group of {} nodes is complete; a node came late or twice.",
                     options_.num_nodes);
}

void Door::Impl::let_in(int node, Newcomer& newcomer) {
  const std::lock_guard lock(mutex_);
  if (complete_) throw Refusal{late_sentence()};
  forget_gone();
  std::unique_ptr<Connection>& place = connections_[static_cast<size_t>(node)];
  if (place) {
    throw Refusal{fmt::format("Two nodes came with --node-rank {}; expected each of 1 to {} once.",
                              node, options_.num_nodes - 1)};
  }
  newcomer.connection->set_deadline(std::nullopt);
  place = std::move(newcomer.connection);
  ping_waiting();
  changed_.notify_all();
}

void Door::Impl::refuse(Newcomer& newcomer, const std::string& sentence, bool proved) {
  if (!proved) {
    const std::lock_guard lock(mutex_);
    last_refusal_ = sentence;
  }
  newcomer.connection->try_send(FrameKind::kRefused, sentence);
  newcomer.connection->finish_sending();
  log_of_newcomer(fmt::format("turned {} away: {}", newcomer.connection->peer(), sentence));
  if (!proved) return;
  // A stranger cannot end the join; a node of this group that does not fit does.
  const std::lock_guard lock(mutex_);
  if (complete_) return;
  failure_ = sentence;
  changed_.notify_all();
}

void Door::Impl::log_of_newcomer(const std::string& line) {
  const int told = num_told_++;
  if (told < kMostTold) log(line);
  if (told + 1 == kMostTold) log("of newcomers that are turned away no more are named");
}

void Door::Impl::forget_gone() {
  for (auto& connection : connections_) {
    if (connection && connection->is_closed()) connection.reset();
  }
}

void Door::Impl::ping_waiting() {
  forget_gone();
  const std::string awaited = fmt::format("{}", fmt::join(missing(), ", "));
  for (auto& connection : connections_) {
    if (connection && connection->send(FrameKind::kPing, awaited) != Io::kDone) connection.reset();
  }
}

bool Door::Impl::lacks_nodes() {
  forget_gone();
  return !missing().empty();
}

std::vector<int> Door::Impl::missing() const {
  std::vector<int> nodes;
  for (size_t node = 1; node < connections_.size(); ++node) {
    if (!connections_[node]) nodes.push_back(static_cast<int>(node));
  }
  return nodes;
}

std::vector<std::unique_ptr<Connection>> Door::Impl::wait() {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(options_.timeout_s));
  std::unique_lock lock(mutex_);
  while (failure_.empty() && lacks_nodes()) {
    const auto next = std::min(deadline, Clock::now() + kPingInterval);
    if (changed_.wait_until(lock, next) != std::cv_status::timeout) continue;
    ping_waiting();
    if (Clock::now() < deadline || missing().empty()) continue;
    failure_ =
        fmt::format("After {:g} s (--join-timeout) the group of {} nodes at {}:{} lacks node {}{}",
                    options_.timeout_s, options_.num_nodes, options_.address, port(),
                    fmt::join(missing(), ", "),
                    last_refusal_.empty() ? "." : ". A newcomer was turned away: " + last_refusal_);
  }
  for (auto& connection : connections_) {
    if (!connection) continue;
    if (failure_.empty()) {
      connection->send(FrameKind::kWelcome);
    } else {
      connection->try_send(FrameKind::kRefused, failure_);
      connection->finish_sending();
    }
  }
  complete_ = true;
  if (!failure_.empty()) throw Error(failure_);
  return std::move(connections_);
}

Door::Door(JoinOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Door::~Door() = default;

uint16_t Door::port() const {
  return impl_->port();
}

std::vector<std::unique_ptr<Connection>> Door::wait() {
  return impl_->wait();
}

}  // namespace quire::cluster
