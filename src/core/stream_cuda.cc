#include "core/stream_cuda.h"

#include <string_view>
#include <utility>

#include "core/check_cuda.h"

namespace quire {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device), "asking for a property of the device");
  return value;
}

// While it lives, this thread may allocate although one of its streams is being captured: what a
// stream owns outlives its graphs.
class AllocationScope {
 public:
  AllocationScope() {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "allowing an allocation");
  }
  ~AllocationScope() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

void* allocate(size_t bytes, std::string_view what) {
  const AllocationScope scope;
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), what);
  return memory;
}

}  // namespace

CudaStream::CudaStream(int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms)
    : index_(index), linear_algorithms_(std::move(algorithms)) {
  check_cuda(cudaSetDevice(index), "selecting the device");
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  num_multiprocessors_ = attribute(cudaDevAttrMultiProcessorCount, index);
  compute_capability_ = 10 * attribute(cudaDevAttrComputeCapabilityMajor, index) +
                        attribute(cudaDevAttrComputeCapabilityMinor, index);
  max_shared_bytes_ =
      static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  l2_bytes_ = static_cast<size_t>(attribute(cudaDevAttrL2CacheSize, index));
}

CudaStream::~CudaStream() {
  // A failure here repeats an earlier one: the context is lost.
  if (cublas_ != nullptr) cublasLtDestroy(cublas_);
  if (workspace_ != nullptr) cudaFree(workspace_);
  if (scratch_ != nullptr) cudaFree(scratch_);
  cudaStreamDestroy(stream_);
}

cublasLtHandle_t CudaStream::cublas() {
  if (cublas_ == nullptr) {
    const AllocationScope scope;
    check_cublas(cublasLtCreate(&cublas_), "starting cuBLAS");
  }
  return cublas_;
}

void* CudaStream::cublas_workspace() {
  if (workspace_ == nullptr) {
    workspace_ = allocate(kWorkspaceBytes, "allocating cuBLAS's workspace");
  }
  return workspace_;
}

void* CudaStream::scratch() {
  if (scratch_ == nullptr) scratch_ = allocate(kScratchBytes, "allocating scratch memory");
  return scratch_;
}

PFN_cuTensorMapEncodeTiled_v12000 CudaStream::encode_tensor_map() {
  if (encode_tensor_map_ == nullptr) {
    constexpr unsigned kCudaVersion = 12000;
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kCudaVersion,
                                                cudaEnableDefault, &result),
               "asking the driver for tensor maps");
    check_cuda(result == cudaDriverEntryPointSuccess ? cudaSuccess : cudaErrorSymbolNotFound,
               "asking the driver for tensor maps");
    encode_tensor_map_ = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }
  return encode_tensor_map_;
}

}  // namespace quire
