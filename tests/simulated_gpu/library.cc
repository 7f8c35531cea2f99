// The one function of libquire_simulated_gpu.so: GPUs that are threads of the CPU, so that all that
// the host does for a GPU can be tested where there is none. simulated_gpu/gpu.h lists its
// settings.
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "core/device_library.h"
#include "dist/communicator.h"
#include "ops/cuda/kernels.h"
#include "simulated_gpu/communicators.h"
#include "simulated_gpu/gpu.h"
#include "simulated_gpu/kernels.h"
#include "simulated_gpu/memory.h"
#include "simulated_gpu/shared_communicators.h"
#include "simulated_gpu/stream.h"

namespace quire::simulated {
namespace {

constexpr int64_t kL2Bytes = int64_t{1} << 20;

// Of all libraries in the process, as a machine's GPUs are: two engines share their memory.
Gpus& gpus() {
  static Gpus all = [] {
    const Settings settings = Settings::from_environment();
    Gpus made;
    for (int i = 0; i < settings.num_gpus; ++i) made.push_back(std::make_unique<Gpu>(i, settings));
    return made;
  }();
  return all;
}

class SimulatedLibrary final : public DeviceLibrary {
 public:
  std::vector<DeviceInfo> devices() override {
    std::vector<DeviceInfo> infos;
    for (const auto& gpu : gpus()) {
      infos.push_back({"Simulated GPU", gpu->compute_capability(), kNumMultiprocessors, kL2Bytes,
                       gpu->total_bytes(), gpu->uuid()});
    }
    return infos;
  }
  int64_t free_bytes(int index) override { return gpu(index).free_bytes(); }
  // A simulated GPU takes nothing; this is here to be planned for.
  int64_t overhead_bytes(int num_ranks) const override { return num_ranks * (int64_t{8} << 20); }
  std::unique_ptr<DeviceMemory> reserve(int index, size_t bytes) override {
    return simulated::reserve(gpu(index), bytes);
  }
  std::unique_ptr<DeviceStream> make_stream(
      int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms) override {
    return simulated::make_stream(gpu(index), std::move(algorithms));
  }
  std::unique_ptr<PinnedBuffer> allocate_pinned(size_t bytes) override {
    return simulated::allocate_pinned(gpus(), bytes);
  }
  void allow_reads(int, int) override {}  // it is all one memory
  const ops::CudaKernels& kernels() const override { return simulated::kernels(); }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      std::span<const int> indices) override {
    return simulated::make_communicators(indices);
  }
  std::vector<std::byte> make_group_id() override {
    const std::lock_guard lock(mutex_);
    return group_memory_.emplace_back().id();
  }
  std::vector<std::unique_ptr<Communicator>> join_group(const GroupPart& part) override {
    return simulated::join_group(part);
  }

 private:
  static Gpu& gpu(int index) { return *gpus().at(static_cast<size_t>(index)); }

  std::mutex mutex_;
  std::list<SharedMemory> group_memory_;
};

}  // namespace
}  // namespace quire::simulated

extern "C" __attribute__((visibility("default"))) quire::DeviceLibrary* quire_cuda_library(
    const char* version) {
  const char* other = std::getenv("QUIRE_SIMULATED_VERSION");
  if ((other != nullptr ? other : quire::device_library_version()) != version) return nullptr;
  return new quire::simulated::SimulatedLibrary();
}
