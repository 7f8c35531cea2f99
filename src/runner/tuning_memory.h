#pragma once
// Matrices in GPU memory for timing products. They are random: with zeros a GPU needs much less
// power and looks faster than it is.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <memory>
#include <span>

#include "core/device_library.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/algorithms.h"

namespace quire {

class TuningMemory {
 public:
  // For all of `shapes`: not empty, all of one dtype; the first is timed whatever rows a user
  // chooses. Throws Error where the first GPU, `gpu`, has too little free memory.
  TuningMemory(DeviceLibrary& library, const DeviceInfo& gpu,
               std::span<const ops::LinearShape> shapes);

  // A product with enough copies of its weights that none is found in the L2 cache.
  ops::CudaLinearTrials trials_of(const ops::LinearShape& shape, bool has_bias) const;
  // A copy that no cache holds, as far as the GPU has room for it.
  ops::CudaCopy copy() const;

 private:
  struct Sizes {
    int64_t operands;
    int64_t out;
  };

  Sizes sizes_for(std::span<const ops::LinearShape> shapes) const;
  void check_room(std::span<const ops::LinearShape> shapes, int64_t free, int64_t overhead) const;
  int64_t weights_of(const ops::LinearShape& shape) const;
  int64_t operand_bytes(const ops::LinearShape& shape) const;
  void fill_operands(DType dtype);

  int64_t l2_bytes_;
  int64_t copy_bytes_ = 0;
  int64_t operands_bytes_ = 0;
  std::unique_ptr<DeviceMemory> memory_;
  // Weights, then activations; biases are the first of the weights. They are only read, so all
  // shapes share them. Outputs may hold anything.
  std::byte* operands_ = nullptr;
  std::byte* out_ = nullptr;
};

}  // namespace quire
