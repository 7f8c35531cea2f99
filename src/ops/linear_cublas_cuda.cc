#include <cublasLt.h>
#include <library_types.h>

#include <cstdint>

#include "base/check.h"
#include "core/check_cuda.h"
#include "core/stream_cuda.h"
#include "ops/linear_cuda.cuh"

namespace quire::ops::cuda {
namespace {

constexpr size_t kMostChoices = 4096;
constexpr uint32_t kAlignment = 16;  // bytes, of every matrix

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

class Layout {
 public:
  // cuBLAS's matrices are column major: `columns` columns of `rows` elements each.
  Layout(DType dtype, int64_t rows, int64_t columns, int64_t stride) {
    check_cublas(cublasLtMatrixLayoutCreate(&layout_, cuda_type(dtype), static_cast<uint64_t>(rows),
                                            static_cast<uint64_t>(columns), stride),
                 "describing a matrix");
  }
  ~Layout() { cublasLtMatrixLayoutDestroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// Sums are float32, and float32 is multiplied as such, not as tf32.
class Product {
 public:
  Product() {
    check_cublas(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                 "describing a matrix product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  }
  ~Product() { cublasLtMatmulDescDestroy(product_); }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  cublasLtMatmulDesc_t get() const { return product_; }

  void add_bias(const void* bias, DType dtype) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(cuda_type(dtype)));
  }

 private:
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, T value) {
    check_cublas(cublasLtMatmulDescSetAttribute(product_, attribute, &value, sizeof(value)),
                 "describing a matrix product");
  }

  cublasLtMatmulDesc_t product_ = nullptr;
};

class Preference {
 public:
  Preference() {
    check_cublas(cublasLtMatmulPreferenceCreate(&preference_), "choosing an algorithm");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CudaStream::kWorkspaceBytes);
    for (const auto alignment :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(alignment, kAlignment);
    }
  }
  ~Preference() { cublasLtMatmulPreferenceDestroy(preference_); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  cublasLtMatmulPreference_t get() const { return preference_; }

 private:
  template <typename T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, T value) {
    check_cublas(
        cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof(value)),
        "choosing an algorithm");
  }

  cublasLtMatmulPreference_t preference_ = nullptr;
};

cublasLtMatmulAlgo_t first_choice(CudaStream& stream, const Product& product, const Layout& weight,
                                  const Layout& in, const Layout& out) {
  const Preference preference;
  cublasLtMatmulHeuristicResult_t choice = {};
  int found = 0;
  check_cublas(
      cublasLtMatmulAlgoGetHeuristic(stream.cublas(), product.get(), weight.get(), in.get(),
                                     out.get(), out.get(), preference.get(), 1, &choice, &found),
      "choosing an algorithm");
  check_cublas(found > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED,
               "choosing an algorithm");
  return choice.algo;
}

}  // namespace

void cublas_linear(CudaStream& stream, const CudaLinear& args, const void* bias) {
  check(!args.silu_and_mul, "cuBLAS knows no silu_and_mul");
  // Row major out[rows, n] = in[rows, k] * weight[n, k]^T is, column major, out[n, rows] =
  // weight[k, n]^T * in[k, rows].
  const Layout weight(args.dtype, args.k, args.n, args.k);
  const Layout in(args.dtype, args.k, args.rows, args.in_stride);
  const Layout out(args.out_dtype, args.n, args.rows, args.out_stride);
  Product product;
  if (bias != nullptr) product.add_bias(bias, args.out_dtype);

  auto& choices = stream.cublas_choices();
  const CublasProduct shape = {args.dtype, args.out_dtype, bias != nullptr, args.rows,
                               args.n,     args.k,         args.in_stride,  args.out_stride};
  auto choice = choices.find(shape);
  if (choice == choices.end()) {
    if (choices.size() >= kMostChoices) choices.clear();
    choice = choices.emplace(shape, first_choice(stream, product, weight, in, out)).first;
  }
  const float one = 1;
  const float zero = 0;
  check_cublas(
      cublasLtMatmul(stream.cublas(), product.get(), &one, args.weight, weight.get(), args.in,
                     in.get(), &zero, args.out, out.get(), args.out, out.get(), &choice->second,
                     stream.cublas_workspace(), CudaStream::kWorkspaceBytes, stream.get()),
      "multiplying matrices");
}

}  // namespace quire::ops::cuda
