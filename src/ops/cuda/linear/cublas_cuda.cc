#include "ops/cuda/linear/cublas_cuda.h"

#include <library_types.h>

#include <cstdint>

#include "base/check.h"
#include "core/check_cuda.h"
#include "ops/cuda/linear/linear.cuh"

namespace quire::ops::cuda {
namespace {

constexpr size_t kMostChoices = 4096;
constexpr uint32_t kAlignment = 16;  // bytes, of every matrix
constexpr cublasComputeType_t kComputeType = CUBLAS_COMPUTE_32F;
constexpr cudaDataType_t kScaleType = CUDA_R_32F;

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    case DType::kFloat8E4M3:
      return CUDA_R_8F_E4M3;
    default:
      return CUDA_R_32F;
  }
}

DType type_of_operands(const CudaLinear& args) {
  return args.weight.format.is_dense() ? args.dtype : args.weight.format.dtype;
}

template <typename T>
void set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, T value) {
  check_cublas(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)),
               "describing a matrix product");
}

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

// Calls f(attribute, value) for each part of an algorithm's name but its id.
template <typename Algorithm, typename F>
void for_each_part(Algorithm& algorithm, const F& f) {
  f(CUBLASLT_ALGO_CONFIG_TILE_ID, algorithm.tile);
  f(CUBLASLT_ALGO_CONFIG_STAGES_ID, algorithm.stages);
  f(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, algorithm.split_k);
  f(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, algorithm.reduction);
  f(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, algorithm.swizzle);
  f(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, algorithm.custom);
  f(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, algorithm.inner_shape);
  f(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, algorithm.cluster_shape);
}

// What the stream's table names for a product, else the heuristics' first answer. It follows from
// nothing but the shape, the table, the kind of device and cuBLAS's version.
std::optional<cublasLtMatmulAlgo_t> choose(CudaStream& stream, const CudaLinear& args,
                                           const CublasLinear& product) {
  static_assert(kReductionInFloat32 == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  if (!args.weight.format.is_dense()) {
    const auto found = product.find_heuristics(1);
    return found.empty() ? std::nullopt : std::optional(found.front());
  }
  const LinearShape shape = {{stream.compute_capability(), stream.num_multiprocessors()},
                             args.dtype,
                             args.out_dtype,
                             args.n,
                             args.k,
                             args.rows};
  if (stream.linear_algorithms() == nullptr) {
    stream.set_linear_algorithms(std::make_shared<LinearAlgorithms>());
  }
  if (const auto named = stream.linear_algorithms()->find(shape)) {
    if (const auto algorithm = product.configure(*named)) return *algorithm;
  }
  return product.heuristics(1).front();
}

}  // namespace

// cuBLAS's matrices are column major: `columns` columns of `rows` elements each.
CublasLinear::Layout CublasLinear::make_layout(DType dtype, int64_t rows, int64_t columns,
                                               int64_t stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, cuda_type(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(columns), stride),
               "describing a matrix");
  return Layout(layout);
}

CublasLinear::CublasLinear(CudaStream& stream, const CudaLinear& args, const void* bias)
    : stream_(stream), args_(args) {
  check(!args.silu_and_mul, "cuBLAS knows no silu_and_mul");
  const DType type = type_of_operands(args);
  Float8Activations activations = {};
  if (type == DType::kFloat8E4M3) {
    activations = float8_activations(args, true);
    args_.in = activations.data;
    args_.in_stride = args.k;
  }
  // Row major out[rows, n] = in[rows, k] * weight[n, k]^T is, column major, out[n, rows] =
  // weight[k, n]^T * in[k, rows].
  weight_ = make_layout(type, args.k, args.n, args.k);
  in_ = make_layout(type, args.k, args.rows, args_.in_stride);
  out_ = make_layout(args.out_dtype, args.n, args.rows, args.out_stride);
  cublasLtMatmulDesc_t product = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&product, kComputeType, kScaleType),
               "describing a matrix product");
  product_.reset(product);
  set(product, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (type == DType::kFloat8E4M3) set_scales(activations);
  if (bias == nullptr) return;
  set(product, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  set(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  set(product, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
      static_cast<int32_t>(cuda_type(args.out_dtype)));
}

void CublasLinear::set_scales(const Float8Activations& activations) {
  const bool blocks = has_blocks(args_);
  set(product_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_MODE,
      static_cast<int32_t>(blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                  : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
  set(product_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_MODE,
      static_cast<int32_t>(blocks ? CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
                                  : CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F));
  set(product_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
      static_cast<const void*>(args_.weight.scales));
  set(product_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER,
      static_cast<const void*>(activations.scales));
}

std::vector<cublasLtMatmulAlgo_t> CublasLinear::heuristics(int most) const {
  std::vector<cublasLtMatmulAlgo_t> algorithms = find_heuristics(most);
  check_cublas(algorithms.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS,
               "choosing an algorithm");
  return algorithms;
}

std::vector<cublasLtMatmulAlgo_t> CublasLinear::find_heuristics(int most) const {
  const Preference preference;
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      stream_.cublas(), product_.get(), weight_.get(), in_.get(), out_.get(), out_.get(),
      preference.get(), most, results.data(), &found);
  // The second where it does not know the scales of float8.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check_cublas(status, "choosing an algorithm");
  results.resize(static_cast<size_t>(found));
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result : results) {
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

std::optional<cublasLtMatmulAlgo_t> CublasLinear::configure(
    const LinearAlgorithm& algorithm) const {
  const cudaDataType_t type = cuda_type(args_.dtype);
  const cudaDataType_t out_type = cuda_type(args_.out_dtype);
  cublasLtMatmulAlgo_t configured = {};
  if (cublasLtMatmulAlgoInit(stream_.cublas(), kComputeType, kScaleType, type, type, out_type,
                             out_type, algorithm.id, &configured) != CUBLAS_STATUS_SUCCESS) {
    return std::nullopt;
  }
  bool is_known = true;
  for_each_part(algorithm, [&](cublasLtMatmulAlgoConfigAttributes_t attribute, const auto& value) {
    is_known =
        is_known && cublasLtMatmulAlgoConfigSetAttribute(&configured, attribute, &value,
                                                         sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  });
  cublasLtMatmulHeuristicResult_t result = {};
  const bool runs = is_known &&
                    cublasLtMatmulAlgoCheck(stream_.cublas(), product_.get(), weight_.get(),
                                            in_.get(), out_.get(), out_.get(), &configured,
                                            &result) == CUBLAS_STATUS_SUCCESS &&
                    result.workspaceSize <= CudaStream::kWorkspaceBytes;
  return runs ? std::optional(configured) : std::nullopt;
}

void CublasLinear::run(const cublasLtMatmulAlgo_t& algorithm, const void* weight) const {
  const float one = 1;
  const float zero = 0;
  check_cublas(
      cublasLtMatmul(stream_.cublas(), product_.get(), &one,
                     weight != nullptr ? weight : args_.weight.data, weight_.get(), args_.in,
                     in_.get(), &zero, args_.out, out_.get(), args_.out, out_.get(), &algorithm,
                     stream_.cublas_workspace(), CudaStream::kWorkspaceBytes, stream_.get()),
      "multiplying matrices");
}

std::optional<LinearAlgorithm> describe(const cublasLtMatmulAlgo_t& algorithm) {
  LinearAlgorithm description;
  bool is_known = true;
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto& value) {
    size_t written = 0;
    is_known = is_known &&
               cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value),
                                                    &written) == CUBLAS_STATUS_SUCCESS;
  };
  get(CUBLASLT_ALGO_CONFIG_ID, description.id);
  for_each_part(description, get);
  return is_known ? std::optional(description) : std::nullopt;
}

bool cublas_linear(CudaStream& stream, const CudaLinear& args, const void* bias) {
  const CublasLinear product(stream, args, bias);
  auto& choices = stream.cublas_choices();
  const WeightFormat& format = args.weight.format;
  const CublasProduct shape = {type_of_operands(args),
                               format.group_size,
                               args.out_dtype,
                               bias != nullptr,
                               args.rows,
                               args.n,
                               args.k,
                               args.in_stride,
                               args.out_stride};
  auto choice = choices.find(shape);
  if (choice == choices.end()) {
    if (choices.size() >= kMostChoices) choices.clear();
    choice = choices.emplace(shape, choose(stream, args, product)).first;
  }
  if (!choice->second) return false;
  product.run(*choice->second);
  return true;
}

}  // namespace quire::ops::cuda
