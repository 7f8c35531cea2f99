// Sums over GPUs: our kernels over peer memory (dist/one_shot_cuda.h) against NCCL.
//
//   all_reduce_bench [one-device]    with 2, 4 and 8 GPUs, as far as there are; or two ranks on the
//                                    first, which shows what the kernels take without a link
//
// bf16, each size kCalls times in a CUDA graph, over as many buffers; microseconds a call, the
// median of replays. The link's share is of what a ring moves: 2 (n - 1) / n times the bytes.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "core/check_cuda.h"
#include "core/stream_cuda.h"
#include "dist/nccl_library_cuda.h"
#include "dist/peer_memory_cuda.h"

namespace quire {
namespace {

constexpr int kCalls = 20;
constexpr int kReplays = 15;
constexpr int64_t kMaxBytes = int64_t{128} << 20;
// Kernels of both ranks, and the next ones of both, have to fit one device.
constexpr int64_t kMaxOneDeviceBytes = int64_t{512} << 10;
constexpr int64_t kBufferBytes = int64_t{512} << 20;  // all calls of one size together

struct Bench {
  std::vector<int> devices;
  std::unique_ptr<PeerMemory> peers;
  std::shared_ptr<const NcclLibrary> nccl;  // null: without
  std::vector<ncclComm_t> comms;
  std::barrier<> meet;

  explicit Bench(std::vector<int> all)
      : devices(std::move(all)), meet(static_cast<std::ptrdiff_t>(devices.size())) {}
};

// One rank's side of all measurements: all ranks make the same calls.
class Rank {
 public:
  Rank(Bench& bench, int rank)
      : bench_(bench),
        rank_(rank),
        stream_(bench.devices[static_cast<size_t>(rank)]),
        peers_(bench.peers->view(rank)) {
    check_cuda(cudaMalloc(&data_, kBufferBytes), "allocating data");
    check_cuda(cudaMalloc(&master_, kBufferBytes), "allocating data");
    fill(master_);
    check_cuda(cudaEventCreate(&begin_), "making an event");
    check_cuda(cudaEventCreate(&end_), "making an event");
  }
  ~Rank() {
    bench_.meet.arrive_and_wait();  // freeing waits for the device, which may wait for a peer
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaFree(data_);
    cudaFree(master_);
  }

  void run() {
    const int size = static_cast<int>(bench_.devices.size());
    const bool is_one_device = bench_.devices[0] == bench_.devices[1];
    const int64_t max_bytes = is_one_device ? kMaxOneDeviceBytes : kMaxBytes;
    if (rank_ == 0) {
      fmt::print("{} ranks\n{:>10} {:>10} {:>10} {:>10} {:>12} {:>12}\n", size, "bytes", "one-shot",
                 "two-shot", "NCCL", "best GB/s", "NCCL GB/s");
    }
    for (int64_t bytes = 8 << 10; bytes <= max_bytes; bytes *= 2) {
      const double one = time_peers(bytes, PeerSum::kOneShot);
      const double two = time_peers(bytes, PeerSum::kTwoShot);
      const double nccl = bench_.nccl ? time_nccl(bytes) : 0;
      if (rank_ != 0) continue;
      const double moved = 2.0 * (size - 1) / size * static_cast<double>(bytes) / 1e3;
      fmt::print("{:>10} {:>10.2f} {:>10.2f} {:>10.2f} {:>12.1f} {:>12.1f}\n", bytes, one, two,
                 nccl, moved / std::min(one, two), nccl > 0 ? moved / nccl : 0.0);
      std::fflush(stdout);
    }
  }

 private:
  double time_peers(int64_t bytes, PeerSum how) {
    return time(bytes, [&](void* data) {
      peer_all_reduce(stream_, peers_, DType::kBFloat16, data, bytes / 2, how);
    });
  }

  double time_nccl(int64_t bytes) {
    return time(bytes, [&](void* data) {
      bench_.nccl->check_nccl(
          bench_.nccl->all_reduce(data, data, static_cast<size_t>(bytes / 2), ncclBfloat16, ncclSum,
                                  bench_.comms[static_cast<size_t>(rank_)], stream_.get()),
          "summing");
    });
  }

  // Microseconds a call.
  double time(int64_t bytes, const std::function<void(void*)>& call) {
    const int num_buffers = static_cast<int>(std::min<int64_t>(kCalls, kBufferBytes / bytes));
    call(data_);  // what a first call prepares is not in the graph
    check_cuda(cudaStreamSynchronize(stream_.get()), "warming up");
    check_cuda(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
               "capturing");
    for (int i = 0; i < kCalls; ++i) {
      call(static_cast<std::byte*>(data_) + (i % num_buffers) * bytes);
    }
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaStreamEndCapture(stream_.get(), &graph), "capturing");
    check_cuda(cudaGraphInstantiate(&executable, graph, 0), "instantiating");
    check_cuda(cudaGraphUpload(executable, stream_.get()), "uploading");
    std::vector<double> times;
    for (int replay = 0; replay < kReplays; ++replay) {
      check_cuda(cudaMemcpyAsync(data_, master_, static_cast<size_t>(num_buffers * bytes),
                                 cudaMemcpyDeviceToDevice, stream_.get()),
                 "restoring the data");
      check_cuda(cudaStreamSynchronize(stream_.get()), "restoring the data");
      bench_.meet.arrive_and_wait();
      // The ranks begin together: this small sum waits for the last.
      peer_all_reduce(stream_, peers_, DType::kBFloat16, master_, 8);
      check_cuda(cudaEventRecord(begin_, stream_.get()), "recording an event");
      check_cuda(cudaGraphLaunch(executable, stream_.get()), "launching");
      check_cuda(cudaEventRecord(end_, stream_.get()), "recording an event");
      check_cuda(cudaStreamSynchronize(stream_.get()), "running");
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading a time");
      times.push_back(milliseconds * 1e3 / kCalls);
    }
    bench_.meet.arrive_and_wait();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::nth_element(times.begin(), times.begin() + kReplays / 2, times.end());
    return times[kReplays / 2];
  }

  void fill(void* memory) {
    std::minstd_rand random(static_cast<unsigned>(rank_) + 1);
    std::vector<BFloat16> values(1 << 20);
    for (auto& value : values) value = BFloat16(static_cast<float>(random()) / 1073741824.0f - 1);
    const size_t bytes = values.size() * sizeof(BFloat16);
    for (size_t at = 0; at < kBufferBytes; at += bytes) {
      check_cuda(cudaMemcpy(static_cast<std::byte*>(memory) + at, values.data(), bytes,
                            cudaMemcpyHostToDevice),
                 "filling the data");
    }
  }

  Bench& bench_;
  int rank_;
  CudaStream stream_;
  PeerView peers_;
  void* data_ = nullptr;
  void* master_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

void run_ranks(Bench& bench) {
  std::vector<std::thread> threads;
  for (size_t r = 0; r < bench.devices.size(); ++r) {
    threads.emplace_back([&bench, r] {
      try {
        Rank(bench, static_cast<int>(r)).run();
      } catch (const std::exception& error) {
        fmt::print(stderr, "rank {}: {}\n", r, error.what());
        std::_Exit(1);  // the others wait
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

void run(std::vector<int> devices, bool with_nccl) {
  Bench bench(std::move(devices));
  bench.peers = PeerMemory::make(bench.devices);
  if (bench.peers == nullptr) {
    fmt::print("{} ranks: these GPUs do not reach each other's memory.\n", bench.devices.size());
    return;
  }
  if (with_nccl) {
    bench.nccl = NcclLibrary::load();
    bench.comms.resize(bench.devices.size());
    bench.nccl->check_nccl(
        bench.nccl->comm_init_all(bench.comms.data(), static_cast<int>(bench.devices.size()),
                                  bench.devices.data()),
        "starting");
  }
  run_ranks(bench);
  for (const ncclComm_t comm : bench.comms) bench.nccl->comm_destroy(comm);
}

int run_all(bool is_one_device) {
  int num_gpus = 0;
  if (cudaGetDeviceCount(&num_gpus) != cudaSuccess || num_gpus < (is_one_device ? 1 : 2)) {
    fmt::print("There are {} GPUs: nothing to measure.\n", num_gpus);
    return 0;
  }
  if (is_one_device) {
    run({0, 0}, false);
    return 0;
  }
  for (int size = 2; size <= std::min(num_gpus, kMaxPeers); size *= 2) {
    std::vector<int> devices;
    for (int device = 0; device < size; ++device) devices.push_back(device);
    run(std::move(devices), true);
  }
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  try {
    return quire::run_all(argc > 1 && std::string_view(argv[1]) == "one-device");
  } catch (const std::exception& error) {
    fmt::print(stderr, "all_reduce_bench: {}\n", error.what());
    return 1;
  }
}
