#pragma once
// A CUDA stream, and what kernels need to know about its device.
//
// Thread safety: one thread at a time.
#include <cublasLt.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/dtype.h"

namespace quire {

namespace ops {
class LinearAlgorithms;  // ops/cuda/linear/algorithms.h: handed through
}

// The shape of a matrix product that cuBLAS runs (ops/cuda/linear/cublas_cuda.cc).
struct CublasProduct {
  DType dtype;         // of both matrices
  int64_t group_size;  // of their scales, where they are float8: WeightFormat's
  DType out_dtype;
  bool bias;
  int64_t rows;
  int64_t n;
  int64_t k;
  int64_t in_stride;
  int64_t out_stride;
  auto operator<=>(const CublasProduct&) const = default;  // NOLINT(modernize-use-nullptr)
};

class CudaStream {
 public:
  // A new stream on device `index`, which becomes the calling thread's current device. Products
  // look up their algorithms in `algorithms`; null: only in quire's own table.
  explicit CudaStream(int index, std::shared_ptr<const ops::LinearAlgorithms> algorithms = nullptr);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  cudaStream_t get() const { return stream_; }
  int device_index() const { return index_; }
  int num_multiprocessors() const { return num_multiprocessors_; }
  // 80, 90: major times ten plus minor.
  int compute_capability() const { return compute_capability_; }
  // The most shared memory of one block, once cudaFuncSetAttribute has allowed it.
  size_t max_shared_bytes() const { return max_shared_bytes_; }
  size_t l2_bytes() const { return l2_bytes_; }

  // Made at the first use; throws Error.
  cublasLtHandle_t cublas();
  // For cuBLAS's own use: kWorkspaceBytes, 256-byte aligned; made at the first use.
  static constexpr size_t kWorkspaceBytes = size_t{64} << 20;
  void* cublas_workspace();
  // Null: no table was given, and quire's own is to be set at the first use.
  const ops::LinearAlgorithms* linear_algorithms() const { return linear_algorithms_.get(); }
  void set_linear_algorithms(std::shared_ptr<const ops::LinearAlgorithms> algorithms) {
    linear_algorithms_ = std::move(algorithms);
  }
  // Choices so far: asking cuBLAS takes longer than many a product. Nothing: cuBLAS has no
  // algorithm for the product.
  using CublasChoices = std::map<CublasProduct, std::optional<cublasLtMatmulAlgo_t>>;
  CublasChoices& cublas_choices() { return cublas_choices_; }
  // Memory that an op's kernels hand on to its next ones: kScratchBytes, 256-byte aligned; made at
  // the first use.
  static constexpr size_t kScratchBytes = size_t{96} << 20;
  void* scratch();
  // The driver's cuTensorMapEncodeTiled, for devices from compute capability 9.0 on.
  PFN_cuTensorMapEncodeTiled_v12000 encode_tensor_map();

 private:
  int index_;
  std::shared_ptr<const ops::LinearAlgorithms> linear_algorithms_;
  cudaStream_t stream_ = nullptr;
  int num_multiprocessors_ = 0;
  int compute_capability_ = 0;
  size_t max_shared_bytes_ = 0;
  size_t l2_bytes_ = 0;
  cublasLtHandle_t cublas_ = nullptr;
  void* workspace_ = nullptr;
  void* scratch_ = nullptr;
  PFN_cuTensorMapEncodeTiled_v12000 encode_tensor_map_ = nullptr;
  CublasChoices cublas_choices_;
};

}  // namespace quire
