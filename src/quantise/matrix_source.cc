#include "quantise/matrix_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "loader/tensor_rows.h"
#include "quire/error.h"

namespace quire {
namespace {

// Rows that a task reads.
constexpr int64_t kRowsOfTask = 64;

using NamedType = std::pair<std::string_view, DType>;
constexpr std::array<NamedType, 8> kTypes{{{"F32", DType::kFloat32},
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

}  // namespace

DType dtype_of_tensor(const CheckpointTensor& tensor) {
  if (block_type_of(tensor) != nullptr) return DType::kFloat32;
  const auto* const found = std::ranges::find(kTypes, tensor.dtype, &NamedType::first);
  check(found != kTypes.end(), "the checkpoint was compared with the model");
  return found->second;
}

void read_floats(const CheckpointTensor& tensor, IndexRange rows, float* out) {
  const DType dtype = dtype_of_tensor(tensor);
  std::vector<std::byte> scratch;
  const Tensor values = read_rows(tensor, dtype, rows, {0, columns_of_tensor(tensor)}, scratch);
  switch (dtype) {
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

MatrixSource::MatrixSource(const Checkpoint& checkpoint,
                           const std::optional<QuantizationConfig>& quantization,
                           const std::string& module, MatrixShape shape)
    : shape_(shape) {
  const auto scheme = quantization ? quantization->scheme_of(module) : std::nullopt;
  if (scheme && scheme->block_type == nullptr) {
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
                   read_rows(*tensor, dtype_of_tensor(*tensor), part.rows, part.columns, scratch));
  }
  stored_->set_groups();
}

void MatrixSource::read_rows_to(IndexRange rows, float* out) const {
  if (stored_) return stored_->dequantise(rows, out);
  read_floats(*tensors_.front(), rows, out);
}

std::vector<float> MatrixSource::read(IndexRange rows, const EndableLoops& loops) const {
  std::vector<float> values(static_cast<size_t>(rows.size() * k()));
  loops.parallel_for(ceil_div(rows.size(), kRowsOfTask), [&](int64_t task) {
    const int64_t begin = rows.begin + task * kRowsOfTask;
    read_rows_to({begin, std::min(rows.end, begin + kRowsOfTask)},
                 values.data() + (begin - rows.begin) * k());
  });
  return values;
}

}  // namespace quire
