#pragma once
// Where an op runs: the first argument of every op.
//
// On the CPU a stream is a thread pool and an instruction set, and an op has finished when it
// returns. On a GPU an op is queued, and later ops on the same stream see its results. On a stream
// that only checks, an op checks its arguments and touches no memory. Thread safety: one thread at
// a time, the rank's worker.
#include <cstddef>

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/device_library.h"

namespace quire {

class Stream {
 public:
  // Work runs on `pool`, which outlives the stream, with kernels for `isa`, which the CPU supports.
  explicit Stream(ThreadPool& pool, Isa isa = best_isa()) : pool_(&pool), isa_(isa) {}
  // Ops run on `gpu`'s device with `kernels`; `pool` does the host's part. All outlive the stream.
  Stream(ThreadPool& pool, const Device& device, DeviceStream& gpu, const ops::CudaKernels& kernels)
      : device_(device), pool_(&pool), isa_(best_isa()), gpu_(&gpu), kernels_(&kernels) {}
  // A stream that only checks: ops are called as on `device`, which need not exist.
  explicit Stream(const Device& device) : device_(device) {}

  const Device& device() const { return device_; }
  bool is_cpu() const { return device_.is_cpu(); }
  // Whether ops compute; false: they only check their arguments.
  bool computes() const { return pool_ != nullptr; }
  ThreadPool& pool() const {
    check(computes(), "a stream that only checks has no threads");
    return *pool_;
  }
  Isa isa() const { return isa_; }

  // Only on a GPU's stream.
  DeviceStream& gpu() const {
    check(gpu_ != nullptr, "the stream is a GPU's");
    return *gpu_;
  }
  CudaStream& cuda() const { return gpu().cuda(); }
  const ops::CudaKernels& cuda_kernels() const {
    check(kernels_ != nullptr, "the stream is a GPU's");
    return *kernels_;
  }

  // On the CPU: at least `bytes` of memory for one op's own use; the next op overwrites it. It
  // grows to the largest request so far (ops/cpu/scratch.h bounds it). Throws Error when the
  // machine has too little memory.
  std::byte* scratch(size_t bytes) {
    check(is_cpu(), "a GPU's op is given its scratch");
    if (bytes > scratch_.size()) {
      scratch_ = Buffer();
      scratch_ = Buffer(bytes);
    }
    return scratch_.data();
  }

 private:
  Device device_;
  ThreadPool* pool_ = nullptr;
  Isa isa_ = Isa::kScalar;
  DeviceStream* gpu_ = nullptr;
  const ops::CudaKernels* kernels_ = nullptr;
  Buffer scratch_;
};

}  // namespace quire
