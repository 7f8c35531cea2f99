#include "loader/scale_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "quire/error.h"

namespace quire {
namespace {

// Element i of a tensor of a float type, at any address.
template <typename T>
float float_at(const CheckpointTensor& tensor, size_t i) {
  T value;
  std::memcpy(&value, tensor.data + i * sizeof(T), sizeof(T));
  return static_cast<float>(value);
}

float float_at(const CheckpointTensor& tensor, DType dtype, size_t i) {
  if (dtype == DType::kBFloat16) return float_at<BFloat16>(tensor, i);
  if (dtype == DType::kFloat16) return float_at<Float16>(tensor, i);
  check(dtype == DType::kFloat32, "scales are float32, float16 or bfloat16");
  return float_at<float>(tensor, i);
}

// About as much as a task of a pool reads.
constexpr size_t kRangeBytes = size_t{1} << 20;

// Numbers [begin, end) of a tensor.
struct ScaleRange {
  ScaleTensor of;
  size_t begin = 0;
  size_t end = 0;
};

// Whether 16-bit floats are all finite, and not zero unless that is all right. Without a branch in
// the loop, so that compilers use vectors: there are millions.
bool are_narrow_scales(const ScaleRange& range) {
  constexpr size_t kBlock = 4096;
  const uint32_t exponent = range.of.dtype == DType::kBFloat16 ? 0x7f80 : 0x7c00;
  const uint32_t zeros_are_wrong = range.of.may_be_zero ? 0 : 1;
  for (size_t begin = range.begin; begin < range.end; begin += kBlock) {
    uint16_t values[kBlock];
    const size_t size = std::min(kBlock, range.end - begin);
    std::memcpy(values, range.of.tensor->data + begin * sizeof(uint16_t), size * sizeof(uint16_t));
    uint32_t wrong = 0;
    for (size_t i = 0; i < size; ++i) {
      const uint32_t is_not_finite = (values[i] & exponent) == exponent ? 1 : 0;
      const uint32_t is_zero = (values[i] & 0x7fffu) == 0 ? 1 : 0;
      wrong |= is_not_finite | (is_zero & zeros_are_wrong);
    }
    if (wrong != 0) return false;
  }
  return true;
}

// The first number that is no scale; range.end: there is none.
size_t find_wrong_scale(const ScaleRange& range) {
  const bool is_narrow = size_of(range.of.dtype) == sizeof(uint16_t);
  if (is_narrow && !range.of.is_positive && are_narrow_scales(range)) return range.end;
  size_t i = range.begin;
  for (; i < range.end; ++i) {
    const float scale = float_at(*range.of.tensor, range.of.dtype, i);
    if (!std::isfinite(scale) || (scale == 0 && !range.of.may_be_zero)) break;
    if (scale < 0 && range.of.is_positive) break;
  }
  return i;
}

std::string_view expectation(const ScaleTensor& of) {
  if (of.is_positive) return " and more than zero";
  return of.may_be_zero ? "" : " and not zero";
}

// Integers may have a scale of 0 where all weights of a group are too small for its type. Not all
// of a matrix's are.
void check_not_all_zero(const ScaleTensor& of) {
  const size_t count = of.tensor->bytes / size_of(of.dtype);
  for (size_t i = 0; i < count; ++i) {
    if (float_at(*of.tensor, of.dtype, i) != 0) return;
  }
  if (count == 0) return;
  throw Error(
      fmt::format("{}: the tensor {} holds only zeros; expected scales, of which some are "
                  "not zero.",
                  of.tensor->file, of.tensor->name));
}

[[noreturn]] void throw_wrong_scale(const ScaleRange& range, size_t i) {
  throw Error(
      fmt::format("{}: the tensor {} holds {} at index {}; expected scales that are "
                  "finite{}.",
                  range.of.tensor->file, range.of.tensor->name,
                  float_at(*range.of.tensor, range.of.dtype, i), i, expectation(range.of)));
}

}  // namespace

void check_scales(const std::vector<ScaleTensor>& tensors, ThreadPool& pool) {
  std::vector<ScaleRange> ranges;
  for (const ScaleTensor& of : tensors) {
    if (of.may_be_zero) check_not_all_zero(of);
    const size_t count = of.tensor->bytes / size_of(of.dtype);
    const size_t step = kRangeBytes / size_of(of.dtype);
    for (size_t begin = 0; begin < count; begin += step) {
      ranges.push_back({of, begin, std::min(count, begin + step)});
    }
  }
  std::vector<size_t> wrong(ranges.size());
  pool.parallel_for(static_cast<int64_t>(ranges.size()), [&](int64_t i, int) {
    const auto range = static_cast<size_t>(i);
    wrong[range] = find_wrong_scale(ranges[range]);
  });
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (wrong[i] != ranges[i].end) throw_wrong_scale(ranges[i], wrong[i]);
  }
}

}  // namespace quire
