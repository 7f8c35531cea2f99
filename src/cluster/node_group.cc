#include "cluster/node_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "base/blocking_queue.h"
#include "base/check.h"
#include "cluster/mailboxes.h"
#include "cluster/node_reports.h"
#include "quire/error.h"

namespace quire::cluster {
namespace {

// For the others' last step, when the group ends in order.
constexpr std::chrono::seconds kLastWait{10};

uint64_t address_of(uint8_t group, int from, int to) {
  return (static_cast<uint64_t>(group) << 32) | (static_cast<uint64_t>(from) << 16) |
         static_cast<uint64_t>(to);
}

}  // namespace

class NodeGroup::Impl {
 public:
  explicit Impl(const JoinOptions& options, const std::function<void(uint16_t)>& on_port);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Starts to read what the other nodes send.
  void start();
  int64_t agree_least(int64_t mine);
  void send(const Route& route, std::span<const std::byte> bytes);
  void receive(const Route& route, std::span<std::byte> bytes);
  void send_batch(std::span<const std::byte> batch);
  std::optional<std::vector<std::byte>> next_batch();
  std::string give_order(std::span<const std::byte> order);
  std::optional<std::vector<std::byte>> next_order() { return orders_.pop(); }
  void answer_order(const std::string& problem);
  void stop_orders() { orders_.close(); }
  void end();
  void leave(const std::string& sentence);
  void on_leave(std::function<void(const std::string&)> callback);
  void fail(const std::string& sentence);
  void on_failure(std::function<void()> callback);
  std::optional<std::string> failure() const;
  NodeReports& reports() { return reports_; }
  uint64_t bytes_sent() const;

  const int node;
  const int num_nodes;
  const double timeout_s;
  const std::vector<int> node_of_rank;

 private:
  void read(int from);
  // False once the other node says no more.
  bool take(int from, Received& received);
  void take_rank_message(int from, Received& received);
  void take_batch(Received& received);
  void take_leave(const std::string& sentence);
  void ping();
  // The way to a node: its own, or that to node 0.
  Connection& way_to(int other) {
    return *connections_[node == 0 ? static_cast<size_t>(other) : 0];
  }
  void lose(int other, const std::string& what);
  [[noreturn]] void throw_failure() const;

  std::unique_ptr<Door> door_;                            // node 0's
  std::vector<std::unique_ptr<Connection>> connections_;  // null: none, or this node
  Mailboxes mailboxes_;
  BlockingQueue<std::vector<std::byte>> batches_;
  std::vector<std::byte> partial_batch_;
  BlockingQueue<std::vector<std::byte>> orders_;
  std::mutex order_mutex_;
  std::vector<std::unique_ptr<BlockingQueue<std::string>>> answers_;  // node 0: of each node
  // Node 0: of each node; others: element 0 has what was agreed on.
  std::vector<std::unique_ptr<BlockingQueue<int64_t>>> numbers_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  size_t num_reading_ = 0;
  bool ended_ = false;  // in order
  bool closing_ = false;
  bool telling_ = false;  // the others why the group fails
  std::optional<std::string> failure_;
  std::recursive_mutex callback_mutex_;
  std::function<void()> callback_;
  std::function<void(const std::string&)> on_leave_;
  NodeReports reports_{kMaxReport};
  std::vector<std::thread> readers_;
  std::thread pinger_;
};

NodeGroup::Impl::Impl(const JoinOptions& options, const std::function<void(uint16_t)>& on_port)
    : node(options.node),
      num_nodes(options.num_nodes),
      timeout_s(options.timeout_s),
      node_of_rank(options.node_of_rank) {
  if (node == 0) {
    door_ = std::make_unique<Door>(options);
    if (on_port) on_port(door_->port());
    connections_ = door_->wait();
  } else {
    connections_.push_back(join_at_door(options));
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    numbers_.push_back(std::make_unique<BlockingQueue<int64_t>>());
    answers_.push_back(std::make_unique<BlockingQueue<std::string>>());
  }
}

void NodeGroup::Impl::start() {
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!connections_[i]) continue;
    {
      const std::lock_guard lock(mutex_);
      ++num_reading_;
    }
    readers_.emplace_back([this, i] {
      read(static_cast<int>(i));
      {
        const std::lock_guard lock(mutex_);
        --num_reading_;
      }
      changed_.notify_all();
    });
  }
  pinger_ = std::thread([this] { ping(); });
}

NodeGroup::Impl::~Impl() {
  {
    std::unique_lock lock(mutex_);
    // The others hang up when they have done what they were sent, for which they may still need
    // this node to pass on their messages.
    if (node == 0 && ended_ && !failure_) {
      changed_.wait_for(lock, kLastWait, [this] { return num_reading_ == 0; });
    }
    changed_.wait(lock, [this] { return !telling_; });
    closing_ = true;
  }
  changed_.notify_all();
  if (pinger_.joinable()) pinger_.join();
  for (const auto& connection : connections_) {
    if (connection) connection->shut_down();
  }
  for (std::thread& reader : readers_) reader.join();
}

void NodeGroup::Impl::throw_failure() const {
  throw Error(failure().value_or("The group of nodes has ended."));
}

std::optional<std::string> NodeGroup::Impl::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void NodeGroup::Impl::fail(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    if (!ended_) {
      failure_ = sentence;
      telling_ = true;
    }
  }
  changed_.notify_all();
  mailboxes_.close();
  batches_.close();
  orders_.close();
  for (const auto& numbers : numbers_) numbers->close();
  for (const auto& answers : answers_) answers->close();
  if (!failure()) return;
  // First: to end what GPUs wait for may take a while.
  for (const auto& connection : connections_) {
    if (!connection) continue;
    connection->try_send(FrameKind::kFailed, sentence);
    connection->finish_sending();
  }
  {
    const std::lock_guard lock(callback_mutex_);
    if (callback_) callback_();
  }
  {
    const std::lock_guard lock(mutex_);
    telling_ = false;
  }
  changed_.notify_all();
}

void NodeGroup::Impl::on_failure(std::function<void()> callback) {
  const std::lock_guard lock(callback_mutex_);
  callback_ = std::move(callback);
  if (callback_ && failure()) callback_();
}

void NodeGroup::Impl::leave(const std::string& sentence) {
  check(node != 0, "node 0 ends the group itself");
  connections_[0]->try_send(FrameKind::kLeave, sentence);
}

void NodeGroup::Impl::on_leave(std::function<void(const std::string&)> callback) {
  const std::lock_guard lock(callback_mutex_);
  on_leave_ = std::move(callback);
}

void NodeGroup::Impl::lose(int other, const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
  }
  fail(fmt::format("The group of {} nodes ends: node {} {}.", num_nodes, other, what));
}

void NodeGroup::Impl::ping() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kPingInterval, [this] { return closing_ || failure_; })) {
    lock.unlock();
    const std::vector<std::byte> report = reports_.make();
    for (const auto& connection : connections_) {
      if (!connection) continue;
      connection->send_unless_busy(report.empty() ? FrameKind::kPing : FrameKind::kReport, report);
    }
    lock.lock();
  }
}

void NodeGroup::Impl::read(int from) {
  try {
    Received received;
    while (true) {
      switch (connections_[static_cast<size_t>(from)]->receive(received)) {
        case Io::kClosed:
          lose(from, "has gone");
          return;
        case Io::kTimedOut:
          lose(from, fmt::format("has said nothing for {} s", kSilence.count()));
          return;
        case Io::kDone:
          if (!take(from, received)) return;
      }
    }
  } catch (const std::exception& error) {
    lose(from, fmt::format("sent what cannot be read ({})", error.what()));
  }
}

bool NodeGroup::Impl::take(int from, Received& received) {
  switch (received.frame.kind) {
    case FrameKind::kPing:
      return true;
    case FrameKind::kRanks:
      take_rank_message(from, received);
      return true;
    case FrameKind::kVote:
    case FrameKind::kAgreed:
      numbers_[static_cast<size_t>(from)]->push(decode_number(received.payload));
      return true;
    case FrameKind::kBatch:
      take_batch(received);
      return true;
    case FrameKind::kFailed:
      fail(as_sentence(received.payload));
      return false;
    case FrameKind::kLeave:
      if (node != 0) throw Error("only node 0 is asked to end a group");
      take_leave(as_sentence(received.payload));
      return true;
    case FrameKind::kEnd: {
      if (node == 0) throw Error("only node 0 ends a group");
      {
        const std::lock_guard lock(mutex_);
        ended_ = true;
      }
      batches_.close();
      orders_.close();
      return true;
    }
    case FrameKind::kOrder:
      if (node == 0) throw Error("an order to node 0");
      orders_.push(std::move(received.payload));
      return true;
    case FrameKind::kAnswer:
      if (node != 0) throw Error("only node 0 is answered");
      answers_[static_cast<size_t>(from)]->push(
          received.payload.empty() ? std::string() : as_sentence(received.payload));
      return true;
    case FrameKind::kReport:
      if (node != 0) throw Error("only node 0 is told of others");
      reports_.take(from, std::move(received.payload));
      return true;
    default:
      throw Error("a message that has no place in a group");
  }
}

void NodeGroup::Impl::take_rank_message(int from, Received& received) {
  const Frame& frame = received.frame;
  if (frame.from >= node_of_rank.size() || frame.to >= node_of_rank.size() ||
      (node == 0 && node_of_rank[frame.from] != from)) {
    throw Error("a message of a rank that is not there");
  }
  const int to = node_of_rank[frame.to];
  if (to == node) {
    mailboxes_.put(address_of(frame.group, frame.from, frame.to), std::move(received.payload));
  } else if (node == 0) {
    if (way_to(to).send(frame, received.payload) != Io::kDone) lose(to, "takes no messages");
  } else {
    throw Error("a message for a rank that is not here");
  }
}

void NodeGroup::Impl::take_batch(Received& received) {
  if (node == 0) throw Error("a step for node 0");
  if (partial_batch_.size() + received.payload.size() > kMaxMessage) throw Error("a step too long");
  partial_batch_.insert(partial_batch_.end(), received.payload.begin(), received.payload.end());
  if (received.frame.is_last) batches_.push(std::exchange(partial_batch_, {}));
}

void NodeGroup::Impl::take_leave(const std::string& sentence) {
  const std::lock_guard lock(callback_mutex_);
  if (on_leave_) {
    on_leave_(sentence);
  } else {
    fail(sentence);
  }
}

int64_t NodeGroup::Impl::agree_least(int64_t mine) {
  const auto next = [this](size_t from) {
    const std::optional<int64_t> number = numbers_[from]->pop();
    if (!number) throw_failure();
    return *number;
  };
  if (node != 0) {
    connections_[0]->send(FrameKind::kVote, encode_number(mine));
    return next(0);
  }
  int64_t least = mine;
  for (size_t other = 1; other < connections_.size(); ++other) least = std::min(least, next(other));
  for (size_t other = 1; other < connections_.size(); ++other) {
    connections_[other]->send(FrameKind::kAgreed, encode_number(least));
  }
  return least;
}

void NodeGroup::Impl::send(const Route& route, std::span<const std::byte> bytes) {
  const int to = node_of_rank[static_cast<size_t>(route.to)];
  if (to == node) {
    mailboxes_.put(address_of(route.group, route.from, route.to), {bytes.begin(), bytes.end()});
    return;
  }
  const Frame frame{.kind = FrameKind::kRanks,
                    .from = static_cast<uint16_t>(route.from),
                    .to = static_cast<uint16_t>(route.to),
                    .group = route.group};
  if (way_to(to).send_parts(frame, bytes) == Io::kDone) return;
  lose(node == 0 ? to : 0, "takes no messages");
  throw_failure();
}

void NodeGroup::Impl::receive(const Route& route, std::span<std::byte> bytes) {
  if (!mailboxes_.take(address_of(route.group, route.from, route.to), bytes)) throw_failure();
}

void NodeGroup::Impl::send_batch(std::span<const std::byte> batch) {
  for (size_t other = 1; other < connections_.size(); ++other) {
    if (failure()) return;
    if (connections_[other]->send_parts({.kind = FrameKind::kBatch}, batch) != Io::kDone) {
      lose(static_cast<int>(other), "takes no steps");
    }
  }
}

std::optional<std::vector<std::byte>> NodeGroup::Impl::next_batch() {
  std::optional<std::vector<std::byte>> batch = batches_.pop();
  if (!batch && failure()) throw_failure();
  return batch;
}

std::string NodeGroup::Impl::give_order(std::span<const std::byte> order) {
  const std::lock_guard lock(order_mutex_);
  for (size_t other = 1; other < connections_.size(); ++other) {
    if (connections_[other]->send(FrameKind::kOrder, order) != Io::kDone) {
      lose(static_cast<int>(other), "takes no orders");
      throw_failure();
    }
  }
  std::string problem;
  for (size_t other = 1; other < connections_.size(); ++other) {
    const std::optional<std::string> answer = answers_[other]->pop();
    if (!answer) throw_failure();
    if (problem.empty()) problem = *answer;
  }
  return problem;
}

void NodeGroup::Impl::answer_order(const std::string& problem) {
  connections_[0]->send(FrameKind::kAnswer, problem);
}

void NodeGroup::Impl::end() {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || ended_) return;
    ended_ = true;
  }
  for (const auto& connection : connections_) {
    if (connection) connection->send(FrameKind::kEnd);
  }
}

uint64_t NodeGroup::Impl::bytes_sent() const {
  uint64_t bytes = 0;
  for (const auto& connection : connections_) {
    if (connection) bytes += connection->bytes_sent();
  }
  return bytes;
}

NodeGroup::NodeGroup(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeGroup::~NodeGroup() = default;

std::shared_ptr<NodeGroup> NodeGroup::join(const JoinOptions& options,
                                           const std::function<void(uint16_t)>& on_port) {
  auto impl = std::make_unique<Impl>(options, on_port);
  impl->start();
  return std::shared_ptr<NodeGroup>(new NodeGroup(std::move(impl)));
}

int NodeGroup::node() const {
  return impl_->node;
}
int NodeGroup::num_nodes() const {
  return impl_->num_nodes;
}
double NodeGroup::timeout_s() const {
  return impl_->timeout_s;
}
int64_t NodeGroup::agree_least(int64_t mine) {
  return impl_->agree_least(mine);
}
int NodeGroup::node_of_rank(int rank) const {
  return impl_->node_of_rank.at(static_cast<size_t>(rank));
}
void NodeGroup::send(const Route& route, std::span<const std::byte> bytes) {
  impl_->send(route, bytes);
}
void NodeGroup::receive(const Route& route, std::span<std::byte> bytes) {
  impl_->receive(route, bytes);
}
void NodeGroup::send_batch(std::span<const std::byte> batch) {
  impl_->send_batch(batch);
}
std::optional<std::vector<std::byte>> NodeGroup::next_batch() {
  return impl_->next_batch();
}
std::string NodeGroup::give_order(std::span<const std::byte> order) {
  return impl_->give_order(order);
}
std::optional<std::vector<std::byte>> NodeGroup::next_order() {
  return impl_->next_order();
}
void NodeGroup::answer_order(const std::string& problem) {
  impl_->answer_order(problem);
}
void NodeGroup::stop_orders() {
  impl_->stop_orders();
}
void NodeGroup::end() {
  impl_->end();
}
void NodeGroup::leave(const std::string& sentence) {
  impl_->leave(sentence);
}
void NodeGroup::on_leave(std::function<void(const std::string&)> callback) {
  impl_->on_leave(std::move(callback));
}
void NodeGroup::fail(const std::string& sentence) {
  impl_->fail(sentence);
}
void NodeGroup::on_failure(std::function<void()> callback) {
  impl_->on_failure(std::move(callback));
}
std::optional<std::string> NodeGroup::failure() const {
  return impl_->failure();
}
void NodeGroup::on_report(std::function<std::vector<std::byte>()> callback) {
  check(node() != 0, "node 0 tells nobody");
  impl_->reports().set_maker(std::move(callback));
}
std::vector<std::byte> NodeGroup::report_of(int other) const {
  return impl_->reports().of(other);
}
uint64_t NodeGroup::bytes_sent() const {
  return impl_->bytes_sent();
}

}  // namespace quire::cluster
