#include "core/check_cuda.h"

#include <fmt/format.h>

#include <string>

#include "core/device_library.h"
#include "quire/error.h"

namespace quire {

void check_cuda(cudaError_t status, std::string_view what, const CodePlace& where) {
  if (status == cudaSuccess) [[likely]]
    return;
  const std::string sentence =
      fmt::format("CUDA failed while {}: {} ({}, at {}:{}).", what, cudaGetErrorString(status),
                  cudaGetErrorName(status), where.file, where.line);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // or the next launch would be told of it, too
    throw OutOfDeviceMemory(sentence);
  }
  throw Error(sentence);
}

void check_cublas(cublasStatus_t status, std::string_view what, const CodePlace& where) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  const std::string sentence = fmt::format("cuBLAS failed while {}: {} (at {}:{}).", what,
                                           cublasLtGetStatusString(status), where.file, where.line);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    cudaGetLastError();
    throw OutOfDeviceMemory(sentence);
  }
  throw Error(sentence);
}

}  // namespace quire
