#pragma once
// A matrix product as cuBLASLt is told of it, and the algorithms that it has for it.
//
// Errors: what cuBLAS says is thrown as Error. Thread safety: as the stream's.
#include <cublasLt.h>

#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "core/stream_cuda.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/algorithms.h"
#include "ops/cuda/linear/float8.cuh"

namespace quire::ops::cuda {

// Row major out[rows, n] = in[rows, k] * weight[n, k]^T + bias. Sums are float32, and float32 is
// multiplied as such, not as tf32. Of a float8 weight, what is multiplied is the rounded
// activations in the arguments' scratch (float8.cuh).
class CublasLinear {
 public:
  // `bias`: [n] of out_dtype, or null; that of `args` is not looked at. k is a multiple of 8.
  CublasLinear(CudaStream& stream, const CudaLinear& args, const void* bias);

  // The first `most` of what cuBLAS's heuristics name, best first; at least one, or it throws.
  std::vector<cublasLtMatmulAlgo_t> heuristics(int most) const;
  // The same, but none where cuBLAS has no kernel for the product.
  std::vector<cublasLtMatmulAlgo_t> find_heuristics(int most) const;
  // `algorithm` as cuBLAS takes it. Nothing where it does not run this product, or not within
  // CudaStream::kWorkspaceBytes.
  std::optional<cublasLtMatmulAlgo_t> configure(const LinearAlgorithm& algorithm) const;
  // Queues the product with another weight than the arguments' where that is not null.
  void run(const cublasLtMatmulAlgo_t& algorithm, const void* weight = nullptr) const;

 private:
  struct Destroy {
    void operator()(cublasLtMatmulDesc_t product) const { cublasLtMatmulDescDestroy(product); }
    void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
  };
  using Product = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, Destroy>;
  using Layout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, Destroy>;

  static Layout make_layout(DType dtype, int64_t rows, int64_t columns, int64_t stride);

  // The modes and places of float8 operands' scales.
  void set_scales(const Float8Activations& activations);

  CudaStream& stream_;
  CudaLinear args_;  // `in` and in_stride are of what is multiplied
  Product product_;
  Layout weight_;
  Layout in_;
  Layout out_;
};

// What names `algorithm` in a table; nothing where cuBLAS does not say.
std::optional<LinearAlgorithm> describe(const cublasLtMatmulAlgo_t& algorithm);

}  // namespace quire::ops::cuda
