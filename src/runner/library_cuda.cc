// The one function of libquire_cuda.so.
#include <cstring>
#include <utility>

#include "core/check_cuda.h"
#include "core/device_library.h"
#include "core/device_stream_cuda.h"
#include "core/memory_cuda.h"
#include "core/stream_cuda.h"
#include "dist/communicator.h"
#include "dist/nccl_cuda.h"
#include "dist/nccl_ranks_cuda.h"
#include "dist/one_shot_cuda.h"
#include "dist/peer_memory_cuda.h"
#include "ops/cuda/kernels.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr ops::CudaKernels kKernels = {
    .embedding = ops::cuda::embedding,
    .resolve_tokens = ops::cuda::resolve_tokens,
    .gather_rows = ops::cuda::gather_rows,
    .scatter_rows = ops::cuda::scatter_rows,
    .gather_columns = ops::cuda::gather_columns,
    .adjust_logits = ops::cuda::adjust_logits,
    .rms_norm = ops::cuda::rms_norm,
    .silu_and_mul = ops::cuda::silu_and_mul,
    .linear = ops::cuda::linear,
    .linear_cublas_rows = ops::cuda::linear_cublas_rows,
    .linear_rounded_in = ops::cuda::linear_rounded_in,
    .try_linear_algorithms = ops::cuda::try_linear_algorithms,
    .time_copy = ops::cuda::time_copy,
    .qk_norm_rope_cache = ops::cuda::qk_norm_rope_cache,
    .paged_attention = ops::cuda::paged_attention,
    .sample = ops::cuda::sample,
    .logprobs = ops::cuda::logprobs,
    .lora_shrink = ops::cuda::lora_shrink,
    .lora_look_up = ops::cuda::lora_look_up,
    .lora_expand = ops::cuda::lora_expand,
    .lora_norm = ops::cuda::lora_norm,
    .lora_begin = ops::cuda::lora_begin,
    .lora_linear = ops::cuda::lora_linear,
    .lora_linear_takes = ops::cuda::lora_linear_takes,
    .decoder_step = ops::cuda::decoder_step,
    .supports_decoder_step = ops::cuda::supports_decoder_step,
    .paged_attention_scratch_bytes = ops::cuda::paged_attention_scratch_bytes,
    .sample_scratch_bytes = ops::cuda::sample_scratch_bytes,
    .decoder_step_scratch_bytes = ops::cuda::decoder_step_scratch_bytes,
};

// Selects a GPU for the calling thread; at the end of its scope, the GPU that was selected before.
class SelectedDevice {
 public:
  explicit SelectedDevice(int index) {
    check_cuda(cudaGetDevice(&before_), "asking for the current device");
    check_cuda(cudaSetDevice(index), "selecting the device");
  }
  ~SelectedDevice() { cudaSetDevice(before_); }  // it could be selected before
  SelectedDevice(const SelectedDevice&) = delete;
  SelectedDevice& operator=(const SelectedDevice&) = delete;

 private:
  int before_ = 0;
};

class CudaLibrary final : public DeviceLibrary {
 public:
  std::vector<DeviceInfo> devices() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorNoDevice) return {};
    if (status == cudaErrorInsufficientDriver) {
      // CUDA says this also where there is no driver at all.
      int driver = 0;
      cudaDriverGetVersion(&driver);
      if (driver == 0) return {};
      throw Error("the GPU's driver is of CUDA " + std::to_string(driver / 1000) + "." +
                  std::to_string(driver % 1000 / 10) +
                  ", and quire needs one of CUDA 13: release 580 or later.");
    }
    check_cuda(status, "looking for GPUs");
    std::vector<DeviceInfo> devices;
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp properties = {};
      check_cuda(cudaGetDeviceProperties(&properties, i), "asking for a GPU's properties");
      devices.push_back({properties.name, 10 * properties.major + properties.minor,
                         properties.multiProcessorCount, properties.l2CacheSize,
                         static_cast<int64_t>(properties.totalGlobalMem)});
      DeviceInfo& device = devices.back();
      static_assert(sizeof(properties.uuid) == sizeof(device.uuid));
      std::memcpy(device.uuid.data(), &properties.uuid, sizeof(device.uuid));
    }
    return devices;
  }

  int64_t free_bytes(int index) override {
    const SelectedDevice selected(index);
    size_t free = 0;
    size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "asking for a GPU's free memory");
    return static_cast<int64_t>(free);
  }

  int64_t overhead_bytes(int num_ranks) const override {
    constexpr size_t kStream = CudaStream::kWorkspaceBytes + CudaStream::kScratchBytes;
    // Estimates, not sums: kernels that are loaded at their first use, CUDA graphs, and NCCL's own
    // memory.
    constexpr size_t kCodeAndGraphs = size_t{256} << 20;
    constexpr size_t kNccl = size_t{512} << 20;
    const size_t group = num_ranks > 1 ? kPeerMemoryBytes + kNccl : 0;
    return static_cast<int64_t>(kStream + kCodeAndGraphs + group);
  }

  std::unique_ptr<DeviceMemory> reserve(int index, size_t bytes) override {
    return std::make_unique<CudaMemory>(index, bytes);
  }

  std::unique_ptr<DeviceStream> make_stream(
      int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms) override {
    return make_cuda_device_stream(index, std::move(algorithms));
  }

  std::unique_ptr<PinnedBuffer> allocate_pinned(size_t bytes) override {
    return allocate_cuda_pinned(bytes);
  }

  void allow_reads(int reader, int owner) override {
    if (reader == owner) return;
    int can = 0;
    check_cuda(cudaDeviceCanAccessPeer(&can, reader, owner), "asking which GPUs reach each other");
    if (can == 0) return;
    const SelectedDevice selected(reader);
    const cudaError_t status = cudaDeviceEnablePeerAccess(owner, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();  // it is no fault
      return;
    }
    check_cuda(status, "showing a GPU's memory to another");
  }

  const ops::CudaKernels& kernels() const override { return kKernels; }

  std::vector<std::unique_ptr<Communicator>> make_communicators(
      std::span<const int> indices) override {
    return make_nccl_communicators(indices);
  }

  std::vector<std::byte> make_group_id() override { return make_nccl_group_id(); }

  std::vector<std::unique_ptr<Communicator>> join_group(const GroupPart& part) override {
    return join_nccl_group(part);
  }
};

}  // namespace
}  // namespace quire

extern "C" __attribute__((visibility("default"))) quire::DeviceLibrary* quire_cuda_library(
    const char* version) {
  if (quire::device_library_version() != version) return nullptr;
  return new quire::CudaLibrary();
}
