#include "runner/tuning_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/ceil_div.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr int64_t kMatrixAlignment = 256;  // bytes, of every matrix
constexpr int64_t kMostWeights = 512;      // as many small ones as a measurement has runs
constexpr int64_t kMostCopyBytes = int64_t{1} << 29;  // ten times the largest L2 cache
constexpr double kMostOfFree = 0.9;
// Prime, so that no two rows of a matrix are alike.
constexpr size_t kPatternElements = 1'000'003;
constexpr int64_t kUploadBytes = int64_t{64} << 20;

int64_t element_bytes(DType dtype) {
  return static_cast<int64_t>(size_of(dtype));
}

int64_t weight_bytes(const ops::LinearShape& shape) {
  return round_up(shape.n * shape.k * element_bytes(shape.dtype), kMatrixAlignment);
}

// Elements from one row of outputs to the next, as the engine lays them out.
int64_t out_stride(const ops::LinearShape& shape) {
  return round_up(shape.n, 8);
}

int64_t out_bytes(const ops::LinearShape& shape) {
  return round_up(shape.rows * out_stride(shape) * element_bytes(shape.out_dtype),
                  kMatrixAlignment);
}

double in_gib(int64_t bytes) {
  constexpr double kGib = 1 << 30;
  return static_cast<double>(bytes) / kGib;
}

// Evenly spread over (-1, 1): no sum of products overflows float16.
std::vector<std::byte> random_pattern(DType dtype) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<std::byte> bytes(kPatternElements * size_of(dtype));
  const auto put = [&bytes](size_t i, auto value) {
    std::memcpy(&bytes[i * sizeof(value)], &value, sizeof(value));
  };
  for (size_t i = 0; i < kPatternElements; ++i) {
    const float value = uniform(random);
    if (dtype == DType::kBFloat16) {
      put(i, BFloat16(value));
    } else if (dtype == DType::kFloat16) {
      put(i, Float16(value));
    } else {
      put(i, value);
    }
  }
  return bytes;
}

// Bytes [begin, begin + count) of the pattern, repeated without end.
void copy_repeated(const std::vector<std::byte>& pattern, int64_t begin, int64_t count,
                   std::byte* to) {
  auto at = static_cast<size_t>(begin) % pattern.size();
  auto left = static_cast<size_t>(count);
  while (left > 0) {
    const size_t piece = std::min(left, pattern.size() - at);
    std::memcpy(to, &pattern[at], piece);
    to += piece;
    left -= piece;
    at = 0;
  }
}

}  // namespace

TuningMemory::TuningMemory(DeviceLibrary& library, const DeviceInfo& gpu,
                           std::span<const ops::LinearShape> shapes)
    : l2_bytes_(gpu.l2_bytes) {
  const int64_t free = library.free_bytes(0);
  constexpr int64_t kCopyShare = 8;
  copy_bytes_ = std::min(kMostCopyBytes, free / kCopyShare / kMatrixAlignment * kMatrixAlignment);
  check_room(shapes, free, library.overhead_bytes(1));
  const Sizes sizes = sizes_for(shapes);
  try {
    memory_ = library.reserve(0, static_cast<size_t>(sizes.operands + sizes.out));
  } catch (const OutOfDeviceMemory&) {
    throw Error(fmt::format(
        "Timing takes {:.2f} GiB of the GPU's memory, and another program took some of that just "
        "now; end it, and tune again.",
        in_gib(sizes.operands + sizes.out)));
  }
  operands_bytes_ = sizes.operands;
  operands_ = memory_->take(static_cast<size_t>(sizes.operands));
  out_ = memory_->take(static_cast<size_t>(sizes.out));
  fill_operands(shapes.front().dtype);
}

TuningMemory::Sizes TuningMemory::sizes_for(std::span<const ops::LinearShape> shapes) const {
  Sizes sizes = {copy_bytes_, copy_bytes_};
  for (const ops::LinearShape& shape : shapes) {
    sizes.operands = std::max(sizes.operands, operand_bytes(shape));
    sizes.out = std::max(sizes.out, out_bytes(shape));
  }
  return sizes;
}

void TuningMemory::check_room(std::span<const ops::LinearShape> shapes, int64_t free,
                              int64_t overhead) const {
  const auto needed = [&](std::span<const ops::LinearShape> some) {
    const Sizes sizes = sizes_for(some);
    return sizes.operands + sizes.out + overhead;
  };
  const auto fits = [&](int64_t bytes) {
    return static_cast<double>(bytes) <= kMostOfFree * static_cast<double>(free);
  };
  const int64_t wanted = needed(shapes);
  if (fits(wanted)) return;
  std::vector<ops::LinearShape> least(shapes.begin(), shapes.end());
  for (size_t i = 1; i < least.size(); ++i) least[i].rows = 1;
  if (!fits(needed(least))) {
    throw Error(fmt::format(
        "Timing takes {:.2f} GiB of the GPU's memory, hardly less with other --rows, and {:.2f} "
        "GiB are free; end what else is on the GPU, or tune on a larger one.",
        in_gib(wanted), in_gib(free)));
  }
  const auto largest =
      std::max_element(shapes.begin(), shapes.end(), [&](const auto& a, const auto& b) {
        return operand_bytes(a) + out_bytes(a) < operand_bytes(b) + out_bytes(b);
      });
  throw Error(
      fmt::format("Timing takes {:.2f} GiB of the GPU's memory, most of them for a product of {} "
                  "rows by a matrix of {} x {}, and {:.2f} GiB are free; choose smaller --rows.",
                  in_gib(wanted), largest->rows, largest->n, largest->k, in_gib(free)));
}

int64_t TuningMemory::weights_of(const ops::LinearShape& shape) const {
  const int64_t bytes = weight_bytes(shape);
  return std::clamp<int64_t>(ceil_div(2 * l2_bytes_, bytes), 1, kMostWeights);
}

int64_t TuningMemory::operand_bytes(const ops::LinearShape& shape) const {
  return weights_of(shape) * weight_bytes(shape) +
         round_up(shape.rows * shape.k * element_bytes(shape.dtype), kMatrixAlignment);
}

void TuningMemory::fill_operands(DType dtype) {
  const std::vector<std::byte> pattern = random_pattern(dtype);
  for (int64_t begin = 0; begin < operands_bytes_; begin += kUploadBytes) {
    const int64_t count = std::min(kUploadBytes, operands_bytes_ - begin);
    memory_->upload(operands_ + begin, static_cast<size_t>(count),
                    [&](std::byte* from) { copy_repeated(pattern, begin, count, from); });
    memory_->finish_uploads();
  }
}

ops::CudaLinearTrials TuningMemory::trials_of(const ops::LinearShape& shape, bool has_bias) const {
  const int64_t num_weights = weights_of(shape);
  return {.product = {.dtype = shape.dtype,
                      .in = operands_ + num_weights * weight_bytes(shape),
                      .in_stride = shape.k,
                      .weight = {.format = shape.dtype, .data = operands_},
                      .rows = shape.rows,
                      .n = shape.n,
                      .k = shape.k,
                      .bias = nullptr,
                      .out = out_,
                      .out_stride = out_stride(shape),
                      .out_dtype = shape.out_dtype,
                      .silu_and_mul = false},
          .bias = has_bias ? operands_ : nullptr,
          .num_weights = num_weights,
          .weight_stride = weight_bytes(shape) / element_bytes(shape.dtype),
          .max_algorithms = 1,
          .repeats = 1};
}

ops::CudaCopy TuningMemory::copy() const {
  return {.to = out_, .from = operands_, .bytes = copy_bytes_, .repeats = 1};
}

}  // namespace quire
