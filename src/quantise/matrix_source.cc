#include "quantise/matrix_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "loader/tensor_rows.h"
#include "quire/error.h"

namespace quire {
namespace {

// Rows that a task reads.
constexpr int64_t kRowsOfTask = 64;

constexpr std::array<std::pair<std::string_view, DType>, 8> kTypes{
    {{"F32", DType::kFloat32},
     {"F16", DType::kFloat16},
     {"BF16", DType::kBFloat16},
     {"I32", DType::kInt32},
     {"I64", DType::kInt64},
     {"U8", DType::kUInt8},
     {"I8", DType::kInt8},
     {"F8_E4M3", DType::kFloat8E4M3}}};

int64_t columns_of_tensor(const CheckpointTensor& tensor) {
  return tensor.shape.size() == 2 ? tensor.shape[1] : 1;
}

int64_t rows_of_tensor(const CheckpointTensor& tensor) {
  return tensor.shape.empty() ? 1 : tensor.shape[0];
}

template <typename T>
void widen_rows(const Tensor& from, float* out) {
  for (int64_t row = 0; row < from.dim(0); ++row) {
    const T* values = from.row<T>(row);
    for (int64_t i = 0; i < from.dim(1); ++i) *out++ = static_cast<float>(values[i]);
  }
}

const CheckpointTensor& found(const Checkpoint& checkpoint, const std::string& name) {
  const CheckpointTensor* tensor = checkpoint.find(name);
  if (tensor == nullptr) throw Error(fmt::format("The checkpoint lacks the tensor {}.", name));
  return *tensor;
}

// Outputs and inputs that a quantised matrix has, as its packed numbers say.
MatrixShape shape_of_stored(const Checkpoint& checkpoint, const WeightScheme& scheme,
                            const std::string& module) {
  // The names and axes of the leaves depend on the size in nothing that matters here.
  constexpr int64_t kAnySize = 256;
  for (const SchemeLeaf& leaf : leaves_of(scheme, module, kAnySize, kAnySize)) {
    if (leaf.role != LeafRole::kNumbers) continue;
    const CheckpointTensor& tensor = found(checkpoint, module + "." + leaf.name);
    if (tensor.shape.size() != 2) break;
    const int64_t rows = tensor.shape[0] * leaf.rows.block;
    const int64_t columns = tensor.shape[1] * leaf.columns.block;
    const bool has_outputs_as_rows = leaf.rows.of == LeafAxis::Of::kOutputs;
    return has_outputs_as_rows ? MatrixShape{rows, columns} : MatrixShape{columns, rows};
  }
  throw Error(fmt::format("{}: expected the numbers of a quantised matrix.", module));
}

}  // namespace

std::optional<DType> dtype_of_tensor(const CheckpointTensor& tensor) {
  if (block_type_of(tensor) != nullptr) return DType::kFloat32;
  for (const auto& [name, dtype] : kTypes) {
    if (name == tensor.dtype) return dtype;
  }
  return std::nullopt;
}

void read_floats(const CheckpointTensor& tensor, IndexRange rows, float* out) {
  const std::optional<DType> dtype = dtype_of_tensor(tensor);
  check(dtype.has_value(), "the tensor's type was checked");
  std::vector<std::byte> scratch;
  const Tensor values = read_rows(tensor, *dtype, rows, {0, columns_of_tensor(tensor)}, scratch);
  switch (*dtype) {
    case DType::kFloat32:
      return widen_rows<float>(values, out);
    case DType::kFloat16:
      return widen_rows<Float16>(values, out);
    case DType::kBFloat16:
      return widen_rows<BFloat16>(values, out);
    default:
      check(false, "dense weights are float32, float16 or bfloat16");
  }
}

MatrixShape matrix_shape(const Checkpoint& checkpoint,
                         const std::optional<QuantizationConfig>& quantization,
                         const std::string& module) {
  if (quantization) {
    if (const auto scheme = quantization->scheme_of(module)) {
      return shape_of_stored(checkpoint, *scheme, module);
    }
  }
  const CheckpointTensor& weight = found(checkpoint, module + ".weight");
  return {rows_of_tensor(weight), columns_of_tensor(weight)};
}

MatrixSource::MatrixSource(const Checkpoint& checkpoint,
                           const std::optional<QuantizationConfig>& quantization,
                           const std::string& module) {
  const auto scheme = quantization ? quantization->scheme_of(module) : std::nullopt;
  shape_ = matrix_shape(checkpoint, quantization, module);
  if (scheme) {
    open_stored(checkpoint, *scheme, module);
  } else {
    tensors_.push_back(&found(checkpoint, module + ".weight"));
  }
}

void MatrixSource::open_stored(const Checkpoint& checkpoint, const WeightScheme& scheme,
                               const std::string& module) {
  stored_ = std::make_unique<StoredMatrix>(
      scheme,
      StoredShare{.module = module, .n = n(), .k = k(), .outputs = {0, n()}, .inputs = {0, k()}});
  std::vector<std::byte> scratch;
  for (size_t i = 0; i < stored_->leaves().size(); ++i) {
    const SchemeLeaf& leaf = stored_->leaves()[i];
    const CheckpointTensor* tensor = checkpoint.find(module + "." + leaf.name);
    if (tensor == nullptr) continue;  // the checkpoint was compared with the model
    tensors_.push_back(tensor);
    const ParameterPart part = stored_->part(i);
    stored_->store(i, 0,
                   read_rows(*tensor, *dtype_of_tensor(*tensor), part.rows, part.columns, scratch));
  }
  stored_->check_values();
}

void MatrixSource::read_rows_to(IndexRange rows, float* out) const {
  if (stored_) return stored_->dequantise(rows, out);
  read_floats(*tensors_.front(), rows, out);
}

std::vector<float> MatrixSource::read(ThreadPool& pool) const {
  std::vector<float> values(static_cast<size_t>(n() * k()));
  pool.parallel_for(ceil_div(n(), kRowsOfTask), [&](int64_t task, int) {
    const IndexRange rows = {task * kRowsOfTask, std::min(n(), (task + 1) * kRowsOfTask)};
    read_rows_to(rows, values.data() + rows.begin * k());
  });
  return values;
}

}  // namespace quire
