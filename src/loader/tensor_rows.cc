#include "loader/tensor_rows.h"

#include <cstdint>
#include <cstring>

#include "base/ceil_div.h"
#include "base/check.h"
#include "loader/gguf_blocks.h"

namespace quire {
namespace {

int64_t columns_of(const CheckpointTensor& tensor) {
  return tensor.shape.size() == 2 ? tensor.shape[1] : 1;
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.raw()) % size_of(tensor.dtype()) == 0;
}

// The same numbers where they begin at any address, row by row.
Tensor copy_rows(const CheckpointTensor& tensor, DType dtype, IndexRange rows, IndexRange columns,
                 std::vector<std::byte>& scratch) {
  const auto size = static_cast<int64_t>(size_of(dtype));
  const int64_t row_bytes = columns_of(tensor) * size;
  const int64_t copied = columns.size() * size;
  scratch.resize(static_cast<size_t>(rows.size() * copied));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    std::memcpy(scratch.data() + (row - rows.begin) * copied,
                tensor.data + tensor.stored_row(row) * row_bytes + columns.begin * size,
                static_cast<size_t>(copied));
  }
  return Tensor(scratch.data(), dtype, {rows.size(), columns.size()});
}

Tensor dequantise_rows(const CheckpointTensor& tensor, const GgufType& type, IndexRange rows,
                       IndexRange columns, std::vector<std::byte>& scratch) {
  if (columns.size() == 0) return Tensor(nullptr, DType::kFloat32, {rows.size(), 0});
  const int64_t row_bytes = columns_of(tensor) / type.block_values * type.block_bytes;
  const int64_t first_block = columns.begin / type.block_values;
  const int64_t end_block = (columns.end + type.block_values - 1) / type.block_values;
  const int64_t count = end_block - first_block;
  // Whole blocks of a row behind the rows that are done.
  const auto kept = static_cast<size_t>(rows.size() * columns.size());
  scratch.resize((kept + static_cast<size_t>(count * type.block_values)) * sizeof(float));
  auto* const out = reinterpret_cast<float*>(scratch.data());
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const std::byte* blocks =
        tensor.data + tensor.stored_row(row) * row_bytes + first_block * type.block_bytes;
    dequantise_gguf(type, blocks, count, out + kept);
    std::memcpy(out + (row - rows.begin) * columns.size(),
                out + kept + (columns.begin - first_block * type.block_values),
                static_cast<size_t>(columns.size()) * sizeof(float));
  }
  return Tensor(out, DType::kFloat32, {rows.size(), columns.size()});
}

}  // namespace

const GgufType* block_type_of(const CheckpointTensor& tensor) {
  const GgufType* type = find_gguf_type(tensor.dtype);
  return type != nullptr && type->block_values > 1 ? type : nullptr;
}

Tensor read_rows(const CheckpointTensor& tensor, DType dtype, IndexRange rows, IndexRange columns,
                 std::vector<std::byte>& scratch) {
  if (const GgufType* type = block_type_of(tensor)) {
    return dequantise_rows(tensor, *type, rows, columns, scratch);
  }
  if (tensor.rotary_heads != 0) return copy_rows(tensor, dtype, rows, columns, scratch);
  const Tensor whole(const_cast<std::byte*>(tensor.data), dtype,
                     {tensor.shape.empty() ? 1 : tensor.shape.front(), columns_of(tensor)});
  const Tensor part = whole.rows(rows.begin, rows.end).columns(columns.begin, columns.end);
  return is_aligned(part) ? part : copy_rows(tensor, dtype, rows, columns, scratch);
}

Tensor read_blocks(const CheckpointTensor& tensor, const GgufType& type, IndexRange rows,
                   IndexRange columns, std::vector<std::byte>& scratch) {
  // The tensor as one of bytes.
  CheckpointTensor bytes = tensor;
  bytes.dtype = "U8";
  bytes.shape.back() = columns_of(tensor) / type.block_values * type.block_bytes;
  const IndexRange blocks{columns.begin / type.block_values,
                          ceil_div(columns.end, type.block_values)};
  return read_rows(bytes, DType::kUInt8, rows,
                   {blocks.begin * type.block_bytes, blocks.end * type.block_bytes}, scratch);
}

}  // namespace quire
