// Kernels that take one row of activations after the other.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/group_tiles.h"
#include "simulated_gpu/elements.h"
#include "simulated_gpu/kernels.h"
#include "simulated_gpu/products.h"

namespace quire::simulated {
namespace {

// gate_up: gates, then as many ups.
std::vector<float> silu_and_mul(std::span<const float> gate_up) {
  const size_t inner = gate_up.size() / 2;
  std::vector<float> out(inner);
  for (size_t i = 0; i < inner; ++i) {
    const float gate = gate_up[i];
    out[i] = gate / (1.0f + std::exp(-gate)) * gate_up[inner + i];
  }
  return out;
}

// Output i of the weight as numbers, inputs as they lie in memory. Those of float8 and of integers
// have their scales: so neither they nor the activations that they are multiplied by are rounded,
// and a product is that of the dequantised weight.
void read_weight(const ops::CudaLinear& args, int64_t i, std::vector<float>& row) {
  const ops::WeightFormat& format = args.weight.format;
  if (format.is_integer()) {
    return read_tile_row(ops::group_tiles(format, args.n, args.k), i, args.weight.data, row);
  }
  read_weights(format.dtype, args.weight.data, i * args.k, row);
  if (format.is_dense()) return;
  const int64_t block = format.group_size;
  const int64_t columns = block == 0 ? 1 : ceil_div(args.k, block);
  const float* scales = args.weight.scales + (block == 0 ? i : i / block * columns);
  for (int64_t j = 0; j < args.k; ++j) {
    row[static_cast<size_t>(j)] *= scales[block == 0 ? 0 : j / block];
  }
}

// As the products of float8 weights do not round their activations here, neither do the kernels
// that make these. What they would have rounded stays where it is, and in the place of a row's
// scales they write a number that tells it from others: so a product can check that it is given the
// rows that were made for it.
float mark_of(DType dtype, const void* array, int64_t first, int64_t k) {
  float mark = 1;
  for (const float value : read(dtype, array, first, k)) mark = value - 0.99f * mark;
  return mark;
}

int64_t scales_of_row(const ops::Float8Activations& rounded, int64_t k) {
  return rounded.has_blocks() ? k / ops::kFloat8Block : 1;
}

void mark_rounded(DType dtype, const void* array, int64_t stride, int64_t rows, int64_t k,
                  const ops::Float8Activations& rounded) {
  if (rounded.data == nullptr) return;
  std::memset(rounded.data, 0x5a, static_cast<size_t>(rows * k));
  for (int64_t row = 0; row < rows; ++row) {
    const float mark = mark_of(dtype, array, row * stride, k);
    for (int64_t i = 0; i < scales_of_row(rounded, k); ++i) {
      rounded.scales[i * rounded.scale_stride + row] = mark;
    }
  }
}

void check_marks(const ops::CudaLinear& args) {
  const ops::Float8Activations& rounded = args.rounded_in;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float mark = mark_of(args.dtype, args.in, row * args.in_stride, args.k);
    for (int64_t i = 0; i < scales_of_row(rounded, args.k); ++i) {
      const float scale = rounded.scales[i * rounded.scale_stride + row];
      check(std::memcmp(&scale, &mark, sizeof(mark)) == 0,
            "a product's rounded inputs are those that were made for it");
    }
  }
}

// A row of activations in the order in which the weight's inputs lie in memory.
std::vector<float> ordered(const ops::CudaLinear& args, std::vector<float> row) {
  if (args.weight.permutation == nullptr) return row;
  std::vector<float> result;
  for (int64_t i = 0; i < args.k; ++i) {
    result.push_back(row[static_cast<size_t>(args.weight.permutation[i])]);
  }
  return result;
}

}  // namespace

void embedding(const ops::CudaEmbedding& args) {
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    const int64_t row = args.ids[t] - args.first_id;
    const bool is_here = row >= 0 && row < args.table_rows;
    write(args.dtype, args.out, t * args.hidden,
          is_here ? read(args.dtype, args.table, row * args.hidden, args.hidden)
                  : std::vector<float>(static_cast<size_t>(args.hidden)));
  }
}

void resolve_tokens(const ops::CudaResolveTokens& args) {
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    if (args.sources[t] >= 0) args.token_ids[t] = std::max(args.sampled[args.sources[t]], 0);
    if (args.slot_mapping[t] < 0 || args.cached_ids == nullptr) continue;
    args.cached_ids[args.slot_mapping[t]] = args.token_ids[t];
  }
}

void gather_rows(const ops::CudaGatherRows& args) {
  const int64_t out_stride = args.out_stride == 0 ? args.hidden : args.out_stride;
  for (int64_t i = 0; i < args.num_rows; ++i) {
    write(args.dtype, args.out, i * out_stride,
          read(args.dtype, args.in, args.rows[i] * args.hidden, args.hidden));
  }
}

void scatter_rows(const ops::CudaScatterRows& args) {
  for (int64_t i = 0; i < args.num_rows; ++i) {
    if (args.slots[i] < 0) continue;
    write(args.dtype, args.out, args.slots[i] * args.hidden,
          read(args.dtype, args.in, i * args.hidden, args.hidden));
  }
}

void gather_columns(const ops::CudaGatherColumns& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t i = 0; i < args.num_columns; ++i) {
      const int32_t column = args.columns[i];
      args.out[row * args.out_stride + i] = column < 0 ? -std::numeric_limits<float>::infinity()
                                                       : args.in[row * args.in_stride + column];
    }
  }
}

void rms_norm(const ops::CudaRmsNorm& args) {
  const auto n = static_cast<size_t>(args.n);
  const int64_t out_stride = args.out_stride == 0 ? args.n : args.out_stride;
  for (int64_t row = 0; row < args.rows; ++row) {
    std::vector<float> x = read(args.dtype, args.x, row * args.n, args.n);
    if (args.residual != nullptr) {
      const std::vector<float> residual = read(args.dtype, args.residual, row * args.n, args.n);
      for (size_t i = 0; i < n; ++i) x[i] += residual[i];
      write(args.dtype, args.residual, row * args.n, x);
      x = read(args.dtype, args.residual, row * args.n, args.n);
    }
    float sum = 0;
    for (const float value : x) sum += value * value;
    const float factor = 1.0f / std::sqrt(sum / static_cast<float>(n) + args.eps);
    for (size_t i = 0; i < n; ++i) x[i] *= factor * args.weight[i];
    write(args.dtype, args.out, row * out_stride, x);
  }
  mark_rounded(args.dtype, args.out, out_stride, args.rows, args.n, args.rounded);
}

void silu_and_mul(const ops::CudaSiluAndMul& args) {
  for (int64_t row = 0; row < args.rows; ++row) {
    write(args.dtype, args.out, row * args.inner,
          silu_and_mul(read(args.dtype, args.gate_up, row * 2 * args.inner, 2 * args.inner)));
  }
}

void linear(const ops::CudaLinear& args) {
  if (args.rounded_in.data != nullptr) check_marks(args);
  // A kernel may leave anything there.
  if (args.scratch != nullptr) {
    const bool is_permuted = args.weight.permutation != nullptr;
    const int64_t bytes = args.weight.format.is_integer()
                              ? ops::group_scratch_bytes(args.rows, args.n, args.k, is_permuted)
                              : ops::linear_scratch_bytes(args.rows, args.k);
    std::memset(args.scratch, 0xa5, static_cast<size_t>(bytes));
  }
  std::vector<std::vector<float>> in;
  for (int64_t row = 0; row < args.rows; ++row) {
    in.push_back(ordered(args, read(args.dtype, args.in, row * args.in_stride, args.k)));
  }
  const auto n = static_cast<size_t>(args.n);
  std::vector<std::vector<float>> out(in.size(), std::vector<float>(n));
  // A few outputs' weights at a time.
  std::array<std::vector<float>, kNumDots> weights;
  std::array<const float*, kNumDots> weight_data;
  for (size_t i = 0; i < kNumDots; ++i) {
    weights.at(i).resize(static_cast<size_t>(args.k));
    weight_data.at(i) = weights.at(i).data();
  }
  for (size_t first = 0; first < n; first += kNumDots) {
    const size_t count = std::min(kNumDots, n - first);
    std::array<float, kNumDots> bias = {};
    for (size_t i = 0; i < count; ++i) {
      read_weight(args, static_cast<int64_t>(first + i), weights.at(i));
      if (args.bias != nullptr) bias.at(i) = args.bias[first + i];
    }
    for (size_t row = 0; row < in.size(); ++row) {
      const auto sums = dots(in[row].data(), weight_data, args.k);
      for (size_t i = 0; i < count; ++i) out[row][first + i] = sums.at(i) + bias.at(i);
    }
  }
  for (size_t row = 0; row < out.size(); ++row) {
    write(args.out_dtype, args.out, static_cast<int64_t>(row) * args.out_stride,
          args.silu_and_mul ? silu_and_mul(out[row]) : out[row]);
  }
  mark_rounded(args.dtype, args.out, args.out_stride, args.rows, args.n / 2, args.rounded_out);
}

ops::Float8Activations linear_rounded_in(const ops::CudaLinear& args) {
  if (args.weight.format.kind != ops::WeightKind::kFloat8) return {};
  auto* data = static_cast<uint8_t*>(args.scratch);
  return {data, reinterpret_cast<float*>(data + round_up(args.rows * args.k, 256)),
          args.weight.format.group_size != 0 ? args.rows : 0};
}

}  // namespace quire::simulated
