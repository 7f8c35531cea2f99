#pragma once
// Checks every CUDA and cuBLAS call: a failure throws Error with the call, the place and the
// library's own words.
//
// Thread safety: free functions.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string_view>

#include "base/check.h"

namespace quire {

// `what` says what the call was for: "copying the batch to the device".
void check_cuda(cudaError_t status, std::string_view what,
                const CodePlace& where = CodePlace::current());
void check_cublas(cublasStatus_t status, std::string_view what,
                  const CodePlace& where = CodePlace::current());

}  // namespace quire
