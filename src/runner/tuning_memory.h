#pragma once
// The matrices that products are timed with, in a GPU's memory: random ones, as zeros would spare a
// GPU much of its power and so flatter it.
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
  // For each of `shapes`, which are all of one dtype and not empty; the first is timed whatever
  // rows a user chooses. Throws Error where the first GPU, `gpu`, has not that much memory free.
  TuningMemory(DeviceLibrary& library, const DeviceInfo& gpu,
               std::span<const ops::LinearShape> shapes);

  // The product with as many weights as it takes to find none of them in the L2 cache.
  ops::CudaLinearTrials trials_of(const ops::LinearShape& shape, bool has_bias) const;
  // What no cache holds, as far as the GPU has room for it.
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
  // Weights, then activations; biases are the first of the weights. Only read, so that all shapes
  // share them. Outputs may hold anything.
  std::byte* operands_ = nullptr;
  std::byte* out_ = nullptr;
};

}  // namespace quire
