#pragma once
// How kernels are launched and follow each other.
//
// On devices from compute capability 9.0 on every kernel is launched as a programmatic dependent of
// the one before it in the stream: it may start while that one drains. So each kernel calls
// wait_for_previous() before it reads or writes any memory that an earlier kernel writes or reads
// (loads of weights may come before), and release_next() where the next kernel may start, at best
// as early as its multiprocessor has room. The last thread of a grid to finish ends its
// predecessor's work for good, so order is kept across any number of kernels as long as some thread
// of each waits.
#include <cuda_runtime.h>

#include <utility>

#include "core/check_cuda.h"
#include "core/stream_cuda.h"

namespace quire {

__device__ __forceinline__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void release_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Lets a kernel whose launches differ in their dynamic shared memory take all that the device has
// beside the kernel's static shared memory. The bound belongs to the function, in all of the
// process: if a launch set it to what it takes itself, another thread's launch could be refused.
// Throws Error.
template <typename... Params>
void allow_shared_memory(const CudaStream& stream, void (*kernel)(Params...),
                         size_t static_bytes = 0) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(stream.max_shared_bytes() - static_bytes)),
             "allowing a kernel its shared memory");
}

// A kernel that takes more than 48 KiB of shared memory has been allowed it, with
// cudaFuncSetAttribute and always the same number, or with allow_shared_memory(). Throws Error.
template <typename... Params, typename... Args>
void launch(CudaStream& stream, void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared_bytes, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.get();
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = stream.compute_capability() >= 90 ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
             "launching a kernel");
}

}  // namespace quire
