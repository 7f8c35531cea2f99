#pragma once
// Every CUDA and cuBLAS call is checked: what fails throws Error with the call, the place and the
// library's own words; OutOfDeviceMemory where the driver found no memory, of the GPU or the host,
// after which CUDA can be used as before.
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
