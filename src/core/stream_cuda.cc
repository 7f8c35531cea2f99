#include "core/stream_cuda.h"

#include "core/check_cuda.h"

namespace quire {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device), "asking for a property of the device");
  return value;
}

}  // namespace

CudaStream::CudaStream(int index) : index_(index) {
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
  // What fails here has failed before: the context is lost.
  if (cublas_ != nullptr) cublasLtDestroy(cublas_);
  if (workspace_ != nullptr) cudaFree(workspace_);
  cudaStreamDestroy(stream_);
}

cublasLtHandle_t CudaStream::cublas() {
  if (cublas_ == nullptr) check_cublas(cublasLtCreate(&cublas_), "starting cuBLAS");
  return cublas_;
}

void* CudaStream::cublas_workspace() {
  if (workspace_ == nullptr) {
    check_cuda(cudaMalloc(&workspace_, kWorkspaceBytes), "allocating cuBLAS's workspace");
  }
  return workspace_;
}

}  // namespace quire
