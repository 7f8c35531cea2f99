#include "simulated_gpu/communicators.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "core/stream.h"
#include "dist/gpu_claims.h"
#include "simulated_gpu/elements.h"
#include "simulated_gpu/kernels.h"
#include "simulated_gpu/shared_communicators.h"
#include "simulated_gpu/stream.h"

namespace quire::simulated {
namespace {

std::vector<std::shared_ptr<Communicator>> make_local(size_t size) {
  // Each GPU has a thread for its stream beside its rank's.
  const int num_threads = 2 * Settings::from_environment().num_gpus;
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (auto& one : make_local_communicators(static_cast<int>(size), num_threads)) {
    communicators.push_back(std::move(one));
  }
  return communicators;
}

// GPUs of several processes reach each other's memory where QUIRE_SIMULATED_HOST names one host.
bool are_on_one_host(const GroupPart& part) {
  const char* const name = std::getenv("QUIRE_SIMULATED_HOST");
  const size_t host = std::hash<std::string_view>()(name == nullptr ? "" : name);
  const std::vector<size_t> mine(part.ranks.size(), host);
  const std::vector<std::byte> all = part.exchange(std::as_bytes(std::span(mine)));
  check(all.size() == static_cast<size_t>(part.size) * sizeof(size_t), "each rank names its host");
  for (size_t at = 0; at < all.size(); at += sizeof(size_t)) {
    if (std::memcmp(&all[at], &host, sizeof(size_t)) != 0) return false;
  }
  return true;
}

// The communicators on the CPU of the ranks that are here: one set for their streams' threads, one
// for the hosts' own.
struct Group {
  explicit Group(std::span<const int> gpus)
      : claim(gpus.size() > 1 ? claims().claim(gpus) : nullptr),
        on_streams(make_local(gpus.size())),
        on_hosts(make_local(gpus.size())),
        words(gpus.size(), std::vector<uint64_t>(kWords)) {}
  explicit Group(const GroupPart& part)
      : claim(part.is_pair ? nullptr : claims().claim(part.indices)),
        on_hosts(part.hosts),
        reaches_all(part.exchange && are_on_one_host(part)) {
    for (const int rank : part.ranks) {
      on_streams.push_back(make_shared_communicator(part.id, rank, part.size));
    }
  }
  static GpuClaims& claims() {
    static GpuClaims all;
    return all;
  }

  GpuClaim claim;
  std::vector<std::shared_ptr<Communicator>> on_streams;
  std::vector<std::shared_ptr<Communicator>> on_hosts;
  bool reaches_all = true;  // each GPU the memory of all of the group's
  // peer_words() of each rank; empty where ranks are in other processes.
  static constexpr size_t kWords = size_t{1} << 17;
  std::vector<std::vector<uint64_t>> words;
  int aborted = 0;
};

// What a rank's collectives run with. In queued work, which may outlive the communicator.
struct Rank {
  Rank(std::shared_ptr<Group> group, size_t place) : group(std::move(group)), place(place) {}

  Communicator& on_stream() const { return *group->on_streams[place]; }
  Communicator& on_host() const { return *group->on_hosts[place]; }

  // The sum over the ranks in float32, rounded once.
  void all_reduce_sum(DType dtype, void* array, int64_t size) {
    std::vector<float> values = read(dtype, array, 0, size);
    on_stream().all_reduce_sum(stream, Tensor(values.data(), DType::kFloat32, {size}));
    write(dtype, array, 0, values);
  }

  std::shared_ptr<Group> group;
  size_t place;  // among the ranks that are here
  ThreadPool pool{1};
  Stream stream{pool};
};

class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(std::shared_ptr<Group> group, size_t place)
      : rank_(std::make_shared<Rank>(std::move(group), place)) {}

  int rank() const override { return rank_->on_stream().rank(); }
  int size() const override { return rank_->on_stream().size(); }

  void all_reduce_sum(Stream& stream, const Tensor& tensor) override {
    check(tensor.contiguous(), "all_reduce_sum takes a contiguous tensor");
    check(reinterpret_cast<uintptr_t>(tensor.raw()) % 16 == 0, "tensors are aligned to 16 bytes");
    stream.cuda().queue("all_reduce_sum", [rank = rank_, tensor] {
      rank->all_reduce_sum(tensor.dtype(), tensor.raw(), tensor.num_elements());
    });
  }

  bool all_reduce_add_norm(Stream& stream, const AddNorm& args) override {
    check(args.x.contiguous() && args.residual.contiguous() && args.out.contiguous(),
          "all_reduce_add_norm takes contiguous tensors");
    if (!rank_->group->reaches_all) return false;
    stream.cuda().queue("all_reduce_add_norm", [rank = rank_, args] {
      rank->all_reduce_sum(args.x.dtype(), args.x.raw(), args.x.num_elements());
      rms_norm({.dtype = args.x.dtype(),
                .x = args.x.raw(),
                .residual = args.residual.raw(),
                .weight = args.weight.data<float>(),
                .eps = args.eps,
                .rows = args.x.dim(0),
                .n = args.x.dim(1),
                .out = args.out.raw()});
    });
    return true;
  }

  void all_gather_columns(Stream& stream, const Tensor& input, const Tensor& output) override {
    stream.cuda().queue("all_gather_columns", [rank = rank_, input, output] {
      rank->on_stream().all_gather_columns(rank->stream, input, output);
    });
  }

  bool splits_rows() const override { return rank_->group->reaches_all; }

  void all_to_all_columns(Stream& stream, const Tensor& input, const Tensor& output) override {
    stream.cuda().queue("all_to_all_columns", [rank = rank_, input, output] {
      const int64_t rows = input.dim(0);
      const size_t row_bytes = static_cast<size_t>(output.dim(1)) * size_of(output.dtype());
      std::vector<std::byte> all(static_cast<size_t>(rows) * row_bytes);
      const Tensor gathered(all.data(), output.dtype(), {rows, output.dim(1)});
      rank->on_stream().all_gather_columns(rank->stream, input, gathered);
      const RowShare share(rows, rank->on_stream().rank(), rank->on_stream().size());
      check(output.dim(0) == share.size(), "a rank gets its share of the rows");
      for (int64_t i = 0; i < share.size(); ++i) {
        auto* to = static_cast<std::byte*>(output.raw()) +
                   static_cast<size_t>(i * output.row_stride()) * size_of(output.dtype());
        std::memcpy(to, &all[static_cast<size_t>(share.begin + i) * row_bytes], row_bytes);
      }
    });
  }

  void broadcast(Stream& stream, const Tensor& tensor, int root) override {
    stream.cuda().queue("broadcast", [rank = rank_, tensor, root] {
      rank->on_stream().broadcast(rank->stream, tensor, root);
    });
  }

  void send(Stream& stream, const Tensor& tensor, int to) override {
    stream.cuda().queue(
        "send", [rank = rank_, tensor, to] { rank->on_stream().send(rank->stream, tensor, to); });
    // The other rank waits for it, which this GPU does not see.
    stream.cuda().work()->begin();
  }

  void receive(Stream& stream, const Tensor& tensor, int from) override {
    stream.cuda().queue("receive", [rank = rank_, tensor, from] {
      rank->on_stream().receive(rank->stream, tensor, from);
    });
  }

  PeerWords peer_words() override {
    Group& group = *rank_->group;
    if (group.words.empty()) return {};
    PeerWords words;
    words.rank = rank();
    words.size = size();
    words.count = static_cast<int64_t>(Group::kWords);
    for (size_t r = 0; r < group.words.size(); ++r) words.regions[r] = group.words[r].data();
    words.aborted = &group.aborted;
    return words;
  }

  void barrier() override { rank_->on_host().barrier(); }

  void abort() override {
    for (const auto& on_host : rank_->group->on_hosts) on_host->abort();
    for (const auto& on_stream : rank_->group->on_streams) on_stream->abort();
    std::atomic_ref<int>(rank_->group->aborted).store(1);
  }

 private:
  std::shared_ptr<Rank> rank_;
};

std::vector<std::unique_ptr<Communicator>> communicators_of(const std::shared_ptr<Group>& group) {
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (size_t place = 0; place < group->on_streams.size(); ++place) {
    communicators.push_back(std::make_unique<SimulatedCommunicator>(group, place));
  }
  return communicators;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_communicators(std::span<const int> gpus) {
  return communicators_of(std::make_shared<Group>(gpus));
}

std::vector<std::unique_ptr<Communicator>> join_group(const GroupPart& part) {
  return communicators_of(std::make_shared<Group>(part));
}

}  // namespace quire::simulated
