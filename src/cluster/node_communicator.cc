#include "cluster/node_communicator.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "base/check.h"
#include "core/device_library.h"

namespace quire {
namespace {

// A tensor up to this size goes whole to all ranks, which takes one message's time; of a larger one
// each rank sums a part, which takes two, but fewer bytes where there are more than two ranks.
constexpr int64_t kWholeElements = 16384;  // 64 KiB

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.raw()),
          static_cast<size_t>(tensor.num_elements()) * size_of(tensor.dtype())};
}

std::span<std::byte> bytes_of(float* values, int64_t count) {
  return std::as_writable_bytes(std::span(values, static_cast<size_t>(count)));
}

class NodeCommunicator final : public Communicator {
 public:
  NodeCommunicator(std::shared_ptr<cluster::NodeGroup> nodes, uint8_t group, std::vector<int> ranks,
                   int rank)
      : nodes_(std::move(nodes)), group_(group), ranks_(std::move(ranks)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(ranks_.size()); }

  void all_reduce_sum(Stream&, const Tensor& tensor) override {
    check(tensor.dtype() == DType::kFloat32 && tensor.contiguous(),
          "all_reduce_sum takes a contiguous float32 tensor");
    float* const values = tensor.data<float>();
    const int64_t n = tensor.num_elements();
    if (n == 0) return;
    if (n <= kWholeElements || n < size()) {
      send_to_others([&](int) { return bytes_of(values, n); });
      sum_into(values, n);
      return;
    }
    const auto begin_of = [&](int r) { return n * r / size(); };
    const auto part_of = [&](int r) {
      return bytes_of(values + begin_of(r), begin_of(r + 1) - begin_of(r));
    };
    send_to_others(part_of);
    sum_into(values + begin_of(rank_), begin_of(rank_ + 1) - begin_of(rank_));
    send_to_others([&](int) { return part_of(rank_); });
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) receive_from(r, part_of(r));
    }
  }

  void all_gather_columns(Stream&, const Tensor& input, const Tensor& output) override {
    check(input.rank() == 2 && output.rank() == 2 && input.dtype() == output.dtype() &&
              output.dim(0) == input.dim(0) && output.dim(1) == input.dim(1) * size(),
          "all_gather_columns takes [rows, cols] to [rows, cols * size]");
    const size_t row_bytes = static_cast<size_t>(input.dim(1)) * size_of(input.dtype());
    std::vector<std::byte> columns(row_bytes * static_cast<size_t>(input.dim(0)));
    const auto row_of = [](const Tensor& tensor, int64_t row) {
      return static_cast<std::byte*>(tensor.raw()) +
             static_cast<size_t>(row * tensor.row_stride()) * size_of(tensor.dtype());
    };
    const auto packed_row = [&](int64_t row) {
      return columns.data() + static_cast<size_t>(row) * row_bytes;
    };
    const auto place = [&](int r, int64_t row) {
      return row_of(output, row) + static_cast<size_t>(r) * row_bytes;
    };
    for (int64_t row = 0; row < input.dim(0); ++row) {
      std::memcpy(packed_row(row), row_of(input, row), row_bytes);
    }
    send_to_others([&](int) { return std::span(columns); });
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) receive_from(r, columns);
      for (int64_t row = 0; row < input.dim(0); ++row) {
        const std::byte* const from = r == rank_ ? row_of(input, row) : packed_row(row);
        if (place(r, row) != from) std::memcpy(place(r, row), from, row_bytes);
      }
    }
  }

  void broadcast(Stream&, const Tensor& tensor, int root) override {
    check(root >= 0 && root < size(), "broadcast from a rank that is not in the group");
    check(tensor.contiguous(), "broadcast takes a contiguous tensor");
    if (rank_ == root) {
      send_to_others([&](int) { return bytes_of(tensor); });
    } else {
      receive_from(root, bytes_of(tensor));
    }
  }

  void send(Stream&, const Tensor& tensor, int to) override {
    check(tensor.contiguous() && to != rank_, "send takes a contiguous tensor to another rank");
    send_to(to, bytes_of(tensor));
  }

  void receive(Stream&, const Tensor& tensor, int from) override {
    check(tensor.contiguous() && from != rank_,
          "receive takes a contiguous tensor from another rank");
    receive_from(from, bytes_of(tensor));
  }

  void barrier() override {
    send_to_others([](int) { return std::span<std::byte>(); });
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) receive_from(r, {});
    }
  }

  void abort() override { nodes_->fail("A rank of the group of nodes has failed."); }

 private:
  int place_of(int rank) const { return ranks_.at(static_cast<size_t>(rank)); }

  void send_to(int to, std::span<const std::byte> bytes) {
    nodes_->send({.group = group_, .from = place_of(rank_), .to = place_of(to)}, bytes);
  }
  void receive_from(int from, std::span<std::byte> bytes) {
    nodes_->receive({.group = group_, .from = place_of(from), .to = place_of(rank_)}, bytes);
  }
  template <typename BytesFor>
  void send_to_others(const BytesFor& bytes_for) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) send_to(r, bytes_for(r));
    }
  }

  // values[i] = the sum of all ranks' values[i], in rank order.
  void sum_into(float* values, int64_t n) {
    const std::vector<float> mine(values, values + n);
    received_.resize(static_cast<size_t>(n));
    for (int r = 0; r < size(); ++r) {
      const float* theirs = mine.data();
      if (r != rank_) {
        receive_from(r, bytes_of(received_.data(), n));
        theirs = received_.data();
      }
      for (int64_t i = 0; i < n; ++i) values[i] = r == 0 ? theirs[i] : values[i] + theirs[i];
    }
  }

  std::shared_ptr<cluster::NodeGroup> nodes_;
  uint8_t group_;
  std::vector<int> ranks_;
  int rank_;
  std::vector<float> received_;
};

}  // namespace

std::unique_ptr<Communicator> make_node_communicator(std::shared_ptr<cluster::NodeGroup> nodes,
                                                     uint8_t group, std::vector<int> ranks,
                                                     int rank) {
  check(rank >= 0 && rank < static_cast<int>(ranks.size()), "a rank is a place in its group");
  return std::make_unique<NodeCommunicator>(std::move(nodes), group, std::move(ranks), rank);
}

std::vector<std::byte> share_group_id(cluster::NodeGroup& nodes, uint8_t group,
                                      const std::vector<int>& ranks,
                                      const std::function<std::vector<std::byte>()>& make) {
  const int first = ranks.at(0);
  // The first rank of each node is told, in a message of one length.
  std::vector<std::byte> message(1 + kMaxGroupIdBytes);
  if (nodes.node_of_rank(first) != nodes.node()) {
    const auto mine = std::ranges::find_if(
        ranks, [&](int rank) { return nodes.node_of_rank(rank) == nodes.node(); });
    check(mine != ranks.end(), "a node that has some of the ranks is told how they meet");
    nodes.receive({.group = group, .from = first, .to = *mine}, message);
    const auto length = std::min(std::to_integer<size_t>(message[0]), kMaxGroupIdBytes);
    return {message.begin() + 1, message.begin() + 1 + static_cast<std::ptrdiff_t>(length)};
  }
  std::vector<std::byte> id = make();
  check(id.size() < message.size() && id.size() <= 255, "the id of a group is short");
  message[0] = static_cast<std::byte>(id.size());
  std::ranges::copy(id, message.begin() + 1);
  std::set<int> told = {nodes.node()};
  for (const int rank : ranks) {
    if (!told.insert(nodes.node_of_rank(rank)).second) continue;
    nodes.send({.group = group, .from = first, .to = rank}, message);
  }
  return id;
}

std::vector<std::byte> exchange_among_ranks(cluster::NodeGroup& nodes, uint8_t group,
                                            const std::vector<int>& ranks,
                                            std::span<const std::byte> mine) {
  const auto is_here = [&](int rank) { return nodes.node_of_rank(rank) == nodes.node(); };
  const auto num_here = static_cast<size_t>(std::ranges::count_if(ranks, is_here));
  check(num_here > 0 && mine.size() % num_here == 0, "each rank says as much as the others");
  const size_t length = mine.size() / num_here;
  std::vector<std::byte> all(length * ranks.size());
  const auto place_of = [&](size_t i) { return std::span(all).subspan(i * length, length); };
  size_t next = 0;  // of those in `mine`
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!is_here(ranks[i])) continue;
    std::ranges::copy(mine.subspan(next++ * length, length), place_of(i).begin());
    // The first rank of each other node is told.
    std::set<int> told = {nodes.node()};
    for (const int rank : ranks) {
      if (!told.insert(nodes.node_of_rank(rank)).second) continue;
      nodes.send({.group = group, .from = ranks[i], .to = rank}, place_of(i));
    }
  }
  const int first_here = *std::ranges::find_if(ranks, is_here);
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (is_here(ranks[i])) continue;
    nodes.receive({.group = group, .from = ranks[i], .to = first_here}, place_of(i));
  }
  return all;
}

}  // namespace quire
