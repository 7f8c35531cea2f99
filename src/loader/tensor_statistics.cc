#include "loader/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/dtype.h"

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

template <typename T>
TensorStatistics scan(const CheckpointTensor& tensor, ThreadPool& pool) {
  TensorStatistics result;
  result.is_floating = true;
  result.num_values = static_cast<int64_t>(tensor.bytes / sizeof(T));
  std::vector<Part> parts(static_cast<size_t>(pool.size()));
  const int64_t num_chunks = (result.num_values + kChunk - 1) / kChunk;
  pool.parallel_for(num_chunks, [&](int64_t chunk, int thread) {
    const int64_t begin = chunk * kChunk;
    const int64_t count = std::min(kChunk, result.num_values - begin);
    parts[static_cast<size_t>(thread)].add(
        read<T>(tensor.data + begin * static_cast<int64_t>(sizeof(T)), count));
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

}  // namespace

TensorStatistics statistics_of(const CheckpointTensor& tensor, ThreadPool& pool) {
  if (tensor.dtype == "F64") return scan<double>(tensor, pool);
  if (tensor.dtype == "F32") return scan<float>(tensor, pool);
  if (tensor.dtype == "BF16") return scan<BFloat16>(tensor, pool);
  if (tensor.dtype == "F16") return scan<Float16>(tensor, pool);
  if (tensor.dtype == "F8_E4M3") return scan<Float8E4M3>(tensor, pool);
  return {};
}

}  // namespace quire
