#include "dist/nccl_cuda.h"

#include <fmt/format.h>

#include <atomic>
#include <set>
#include <utility>

#include "core/check_cuda.h"
#include "core/stream_cuda.h"
#include "dist/all_reduce_norm_cuda.h"
#include "dist/gpu_claims.h"
#include "dist/nccl_library_cuda.h"
#include "dist/nccl_ranks_cuda.h"
#include "dist/peer_memory_cuda.h"
#include "quire/error.h"

namespace quire {
namespace {

// From here on NCCL moves more bytes a second than our kernels (bench/dist/all_reduce_bench.cc).
int64_t max_peer_bytes(int size) {
  return size == 2 ? int64_t{16} << 20 : int64_t{4} << 20;
}

// Where NCCL puts the ranks' columns one after the other; a row of all ranks fits.
constexpr int64_t kGatherBytes = 2 * kPeerHalfBytes;

int64_t bytes_of(const Tensor& tensor) {
  return tensor.num_elements() * static_cast<int64_t>(size_of(tensor.dtype()));
}

PeerContent content_of(const Tensor& tensor) {
  return is_floating(tensor.dtype()) ? PeerContent::kFloats : PeerContent::kBits;
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat16:
      return ncclFloat16;
    default:
      return ncclFloat32;
  }
}

// One for the process, like its GPUs.
GpuClaims& gpu_claims() {
  static GpuClaims claims;
  return claims;
}

class CudaGroup {
 public:
  explicit CudaGroup(std::span<const int> devices)
      : claim_(devices.size() > 1 ? gpu_claims().claim(devices) : nullptr),
        devices_(devices.begin(), devices.end()),
        size_(static_cast<int>(devices.size())) {
    for (auto& host : make_local_communicators(size_)) hosts_.push_back(std::move(host));
    if (size_ == 1) return;
    peers_ = PeerMemory::make(devices_);
    const bool is_distinct =
        std::set<int>(devices_.begin(), devices_.end()).size() == devices_.size();
    check(is_distinct || peers_ != nullptr, "ranks of one device are at most kMaxPeers");
    if (!is_distinct) return;
    // A kernel that takes all of a device cannot wait for another on the same one.
    runs_one_kernel_ = peers_ != nullptr && peers_->is_of_one_kind();
    if (auto library = find_library()) nccl_ = std::make_unique<NcclRanks>(library, devices_);
  }

  // Some of the ranks, where others are in other processes.
  explicit CudaGroup(const GroupPart& part)
      : claim_(part.is_pair ? nullptr : gpu_claims().claim(part.indices)),
        devices_(part.indices),
        size_(part.size),
        is_pair_(part.is_pair),
        hosts_(part.hosts),
        peers_(part.exchange ? PeerMemory::join(part) : nullptr),
        nccl_(std::make_unique<NcclRanks>(NcclLibrary::load(), part)),
        runs_one_kernel_(peers_ != nullptr && peers_->is_of_one_kind()) {}

  int size() const { return size_; }
  bool is_pair() const { return is_pair_; }  // as GroupPart says
  // Of the rank at a place among those that are here.
  Communicator& host(size_t place) { return *hosts_[place]; }
  int rank(size_t place) const { return hosts_[place]->rank(); }
  int device(size_t place) const { return devices_[place]; }
  size_t num_here() const { return devices_.size(); }
  // Null where not all GPUs reach each other's memory.
  const PeerMemory* peers() const { return peers_.get(); }
  PeerWords words(int rank) const { return runs_one_kernel_ ? peers_->words(rank) : PeerWords(); }
  // Null where our own kernels do everything.
  NcclRanks* nccl() { return nccl_.get(); }

  // To be called before a collective. Throws what went wrong at the start, and after abort().
  void check_alive(int rank) {
    if (nccl_) nccl_->wait_until_started();
    if (aborted_) throw_aborted(rank);
  }

  void abort() {
    if (aborted_.exchange(true)) return;
    for (const auto& host : hosts_) host->abort();
    if (peers_) peers_->abort();
    if (nccl_) nccl_->abort();
  }

  [[noreturn]] void throw_aborted(int rank) const {
    throw Error(fmt::format("Rank {} of {} stopped because another rank of its group failed.", rank,
                            size()));
  }

 private:
  // Null where it isn't installed, and ranks do without.
  std::shared_ptr<const NcclLibrary> find_library() const {
    try {
      return NcclLibrary::load();
    } catch (const Error&) {
      if (!peers_) throw;
      return nullptr;
    }
  }

  const GpuClaim claim_;  // goes last
  // Of the ranks that are here: their devices, and what meets the others on the host.
  const std::vector<int> devices_;
  const int size_;  // of the whole group
  const bool is_pair_ = false;
  std::vector<std::shared_ptr<Communicator>> hosts_;
  std::unique_ptr<PeerMemory> peers_;
  std::unique_ptr<NcclRanks> nccl_;
  bool runs_one_kernel_ = false;  // that all ranks are in at the same time
  std::atomic<bool> aborted_ = false;
};

class CudaCommunicator final : public Communicator {
 public:
  CudaCommunicator(std::shared_ptr<CudaGroup> group, size_t place)
      : group_(std::move(group)), place_(place), rank_(group_->rank(place)) {
    if (size() == 1 || group_->is_pair()) return;
    if (group_->peers() != nullptr) {
      peers_ = group_->peers()->view(rank_);
    } else {
      check_cuda(cudaSetDevice(group_->device(place)), "selecting the device");
      check_cuda(cudaMalloc(&gathered_, kGatherBytes), "allocating memory for a collective");
    }
  }

  ~CudaCommunicator() override {
    if (gathered_ != nullptr) cudaFree(gathered_);
  }
  CudaCommunicator(const CudaCommunicator&) = delete;
  CudaCommunicator& operator=(const CudaCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce_sum(Stream& stream, const Tensor& tensor) override {
    check(tensor.contiguous(), "all_reduce_sum takes a contiguous tensor");
    group_->check_alive(rank_);
    if (size() == 1 || tensor.num_elements() == 0) return;
    if (has_peers() && (bytes_of(tensor) <= max_peer_bytes(size()) || group_->nccl() == nullptr)) {
      peer_all_reduce(stream.cuda(), peers_, tensor.dtype(), tensor.raw(), tensor.num_elements());
      return;
    }
    call_nccl("summing over the ranks", [&](const NcclLibrary& nccl, ncclComm_t comm) {
      return nccl.all_reduce(tensor.raw(), tensor.raw(), static_cast<size_t>(tensor.num_elements()),
                             nccl_type(tensor.dtype()), ncclSum, comm, stream.cuda().get());
    });
  }

  bool all_reduce_add_norm(Stream& stream, const AddNorm& args) override {
    check(args.x.contiguous() && args.residual.contiguous() && args.out.contiguous(),
          "all_reduce_add_norm takes contiguous tensors");
    group_->check_alive(rank_);
    if (!has_peers() || args.x.num_elements() == 0) return false;
    return peer_all_reduce_add_norm(stream.cuda(), peers_,
                                    {.dtype = args.x.dtype(),
                                     .x = args.x.raw(),
                                     .residual = args.residual.raw(),
                                     .weight = args.weight.data<float>(),
                                     .eps = args.eps,
                                     .rows = args.x.dim(0),
                                     .n = args.x.dim(1),
                                     .out = args.out.raw()});
  }

  void all_gather_columns(Stream& stream, const Tensor& input, const Tensor& output) override {
    const PeerGather args = describe_gather(input, output, input.dim(0));
    if (input.num_elements() == 0) return;
    if (size() == 1) {
      copy_rows(stream.cuda(), args.output, args.output_stride, args.input, args.input_stride,
                args.columns, args.rows);
    } else if (has_peers()) {
      peer_all_gather_columns(stream.cuda(), peers_, args);
    } else {
      gather_through_nccl(stream.cuda(), args);
    }
  }

  bool splits_rows() const override { return has_peers(); }

  void all_to_all_columns(Stream& stream, const Tensor& input, const Tensor& output) override {
    const int64_t rows = input.dim(0);
    check(has_peers() && RowShare(rows, size() - 1, size()).size() > 0,
          "all_to_all_columns is for groups that split rows, and each rank has some");
    PeerGather args = describe_gather(input, output, RowShare(rows, rank_, size()).size());
    args.rows_each = RowShare::rows_each(rows, size());
    peer_all_gather_columns(stream.cuda(), peers_, args);
  }

  void broadcast(Stream& stream, const Tensor& tensor, int root) override {
    check(root >= 0 && root < size(), "broadcast from a rank that is not in the group");
    check(tensor.contiguous(), "broadcast takes a contiguous tensor");
    group_->check_alive(rank_);
    if (size() == 1 || tensor.num_elements() == 0) return;
    if (has_peers()) {
      peer_broadcast(stream.cuda(), peers_, tensor.raw(), bytes_of(tensor), root,
                     content_of(tensor));
      return;
    }
    call_nccl("sending to the ranks", [&](const NcclLibrary& nccl, ncclComm_t comm) {
      return nccl.broadcast(tensor.raw(), tensor.raw(), static_cast<size_t>(bytes_of(tensor)),
                            ncclInt8, root, comm, stream.cuda().get());
    });
  }

  void send(Stream& stream, const Tensor& tensor, int to) override {
    check_peer(tensor, to);
    call_nccl("sending to another rank", [&](const NcclLibrary& nccl, ncclComm_t comm) {
      return nccl.send(tensor.raw(), static_cast<size_t>(bytes_of(tensor)), ncclInt8, to, comm,
                       stream.cuda().get());
    });
  }

  void receive(Stream& stream, const Tensor& tensor, int from) override {
    check_peer(tensor, from);
    call_nccl("receiving from another rank", [&](const NcclLibrary& nccl, ncclComm_t comm) {
      return nccl.receive(tensor.raw(), static_cast<size_t>(bytes_of(tensor)), ncclInt8, from, comm,
                          stream.cuda().get());
    });
  }

  PeerWords peer_words() override {
    check(!std::exchange(gave_words_, true), "a rank's words are for one kernel");
    return group_->words(rank_);
  }

  void barrier() override {
    group_->check_alive(rank_);
    group_->host(place_).barrier();
  }
  void abort() override { group_->abort(); }

 private:
  bool has_peers() const { return group_->peers() != nullptr; }

  // For a tensor that goes to, or comes from, rank `other`.
  void check_peer(const Tensor& tensor, int other) {
    check(other >= 0 && other < size() && other != rank_, "ranks send to others of their group");
    check(tensor.contiguous(), "send and receive take a contiguous tensor");
    group_->check_alive(rank_);
    if (group_->nccl() != nullptr) return;
    throw Error(
        "GPUs send to each other through NCCL, which is not installed or was given one GPU for "
        "several ranks. Install NVIDIA's package libnccl2 and give each rank a GPU.");
  }

  // A gather of all rows of the input into an output of `rows` rows.
  PeerGather describe_gather(const Tensor& input, const Tensor& output, int64_t rows) {
    check(input.rank() == 2 && output.rank() == 2 && input.dtype() == output.dtype() &&
              output.dim(0) == rows && output.dim(1) == input.dim(1) * size(),
          "columns of [rows, cols] are gathered as [rows, cols * size]");
    group_->check_alive(rank_);
    const auto element = static_cast<int64_t>(size_of(input.dtype()));
    return {.input = input.raw(),
            .input_stride = input.row_stride() * element,
            .output = output.raw(),
            .output_stride = output.row_stride() * element,
            .rows = input.dim(0),
            .columns = input.dim(1) * element,
            .content = content_of(input)};
  }

  template <typename Queue>
  void call_nccl(std::string_view what, const Queue& queue) {
    if (!group_->nccl()->call(place_, what, queue)) group_->throw_aborted(rank_);
  }

  static void copy_rows(CudaStream& stream, void* to, int64_t to_stride, const void* from,
                        int64_t from_stride, int64_t columns, int64_t rows) {
    check_cuda(cudaMemcpy2DAsync(to, static_cast<size_t>(to_stride), from,
                                 static_cast<size_t>(from_stride), static_cast<size_t>(columns),
                                 static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream.get()),
               "copying the rows of a tensor");
  }

  // NCCL puts what the ranks send one after the other; as many rows at a time as have room.
  void gather_through_nccl(CudaStream& stream, const PeerGather& args) {
    auto* gathered = static_cast<std::byte*>(gathered_);
    const int64_t rows_at_once = kGatherBytes / (args.columns * size());
    check(gathered_ != nullptr && rows_at_once > 0,
          "a row of all_gather_columns has room in its buffer");
    for (int64_t begin = 0; begin < args.rows; begin += rows_at_once) {
      const int64_t rows = std::min(rows_at_once, args.rows - begin);
      const int64_t bytes = rows * args.columns;
      std::byte* own = gathered + rank_ * bytes;
      copy_rows(stream, own, args.columns,
                static_cast<const std::byte*>(args.input) + begin * args.input_stride,
                args.input_stride, args.columns, rows);
      call_nccl("gathering from the ranks", [&](const NcclLibrary& nccl, ncclComm_t comm) {
        return nccl.all_gather(own, gathered, static_cast<size_t>(bytes), ncclInt8, comm,
                               stream.get());
      });
      for (int r = 0; r < size(); ++r) {
        copy_rows(
            stream,
            static_cast<std::byte*>(args.output) + begin * args.output_stride + r * args.columns,
            args.output_stride, gathered + r * bytes, args.columns, args.columns, rows);
      }
    }
  }

  std::shared_ptr<CudaGroup> group_;
  size_t place_;  // among the ranks that are here
  int rank_;
  PeerView peers_ = {};
  bool gave_words_ = false;
  void* gathered_ = nullptr;  // kGatherBytes, where columns are gathered through NCCL
};

// make() makes a group; the current device stays.
template <typename Make>
std::vector<std::unique_ptr<Communicator>> communicators_of(const Make& make) {
  int current = 0;
  check_cuda(cudaGetDevice(&current), "asking for the current device");
  const std::shared_ptr<CudaGroup> group = make();
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (size_t place = 0; place < group->num_here(); ++place) {
    ranks.push_back(std::make_unique<CudaCommunicator>(group, place));
  }
  check_cuda(cudaSetDevice(current), "selecting the device");
  return ranks;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    std::span<const int> device_indices) {
  check(!device_indices.empty(), "a group has at least one rank");
  return communicators_of([&] { return std::make_shared<CudaGroup>(device_indices); });
}

std::vector<std::unique_ptr<Communicator>> join_nccl_group(const GroupPart& part) {
  return communicators_of([&] { return std::make_shared<CudaGroup>(part); });
}

}  // namespace quire
