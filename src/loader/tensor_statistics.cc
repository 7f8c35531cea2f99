#include "loader/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "loader/gguf_blocks.h"
#include "loader/tensor_rows.h"

namespace quire {
namespace {

// Values that one task reads.
constexpr int64_t kChunk = int64_t{1} << 16;

struct Part {
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  int64_t num_zero = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (std::isfinite(value)) {
      min = std::min(min, value);
      max = std::max(max, value);
      num_zero += value == 0 ? 1 : 0;
    } else if (std::isnan(value)) {
      ++num_nan;
    } else {
      ++num_infinite;
    }
  }

  void add(const Part& other) {
    num_nan += other.num_nan;
    num_infinite += other.num_infinite;
    num_zero += other.num_zero;
    min = std::min(min, other.min);
    max = std::max(max, other.max);
  }
};

// `data` may have any alignment.
template <typename T>
Part read(const std::byte* data, int64_t count) {
  Part part;
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if constexpr (sizeof(T) == 8) {
      part.add(value);
    } else {
      part.add(static_cast<double>(static_cast<float>(value)));
    }
  }
  return part;
}

// `read_part(first, count, thread)` gives the Part of `count` values from `first` on.
template <typename ReadPart>
TensorStatistics scan_parts(int64_t num_values, ThreadPool& pool, const ReadPart& read_part) {
  TensorStatistics result;
  result.is_floating = true;
  result.num_values = num_values;
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  const int64_t num_chunks = (result.num_values + kChunk - 1) / kChunk;
  pool.parallel_for(num_chunks, [&](int64_t chunk, int thread) {
    const int64_t begin = chunk * kChunk;
    const int64_t count = std::min(kChunk, num_values - begin);
    parts[static_cast<size_t>(thread)].add(read_part(begin, count, thread));
  });
  Part all;
  for (const Part& part : parts) all.add(part);
  result.num_nan = all.num_nan;
  result.num_infinite = all.num_infinite;
  result.num_zero = all.num_zero;
  if (all.min <= all.max) {
    result.min = all.min;
    result.max = all.max;
  }
  return result;
}

template <typename T>
TensorStatistics scan(const CheckpointTensor& tensor, ThreadPool& pool) {
  return scan_parts(static_cast<int64_t>(tensor.bytes / sizeof(T)), pool,
                    [&](int64_t first, int64_t count, int) {
                      return read<T>(tensor.data + first * static_cast<int64_t>(sizeof(T)), count);
                    });
}

// Of what the blocks stand for. A chunk is a whole number of blocks.
TensorStatistics scan_blocks(const CheckpointTensor& tensor, const GgufType& type,
                             ThreadPool& pool) {
  const int64_t num_blocks = static_cast<int64_t>(tensor.bytes) / type.block_bytes;
  std::vector<std::vector<float>> scratch(static_cast<size_t>(pool.size()));
  return scan_parts(
      num_blocks * type.block_values, pool, [&](int64_t first, int64_t count, int thread) {
        std::vector<float>& values = scratch[static_cast<size_t>(thread)];
        values.resize(static_cast<size_t>(count));
        dequantise_gguf(type, tensor.data + first / type.block_values * type.block_bytes,
                        count / type.block_values, values.data());
        return read<float>(reinterpret_cast<const std::byte*>(values.data()), count);
      });
}

}  // namespace

TensorStatistics statistics_of(const CheckpointTensor& tensor, ThreadPool& pool) {
  if (tensor.dtype == "F64") return scan<double>(tensor, pool);
  if (tensor.dtype == "F32") return scan<float>(tensor, pool);
  if (tensor.dtype == "BF16") return scan<BFloat16>(tensor, pool);
  if (tensor.dtype == "F16") return scan<Float16>(tensor, pool);
  if (tensor.dtype == "F8_E4M3") return scan<Float8E4M3>(tensor, pool);
  if (const GgufType* type = block_type_of(tensor)) return scan_blocks(tensor, *type, pool);
  return {};
}

}  // namespace quire
