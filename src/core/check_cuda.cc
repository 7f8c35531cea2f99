#include "core/check_cuda.h"

#include <fmt/format.h>

#include "quire/error.h"

namespace quire {

void check_cuda(cudaError_t status, std::string_view what, const CodePlace& where) {
  if (status == cudaSuccess) [[likely]]
    return;
  throw Error(fmt::format("CUDA failed while {}: {} ({}, at {}:{}).", what,
                          cudaGetErrorString(status), cudaGetErrorName(status), where.file,
                          where.line));
}

void check_cublas(cublasStatus_t status, std::string_view what, const CodePlace& where) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  throw Error(fmt::format("cuBLAS failed while {}: {} (at {}:{}).", what,
                          cublasLtGetStatusString(status), where.file, where.line));
}

}  // namespace quire
