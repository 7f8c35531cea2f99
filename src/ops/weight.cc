#include "ops/weight.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/cpu/kernels.h"

namespace quire::ops {
namespace {

// A panel is [steps][64 lanes][values a step].
int64_t values_per_step(DType dtype) {
  return dtype == DType::kBFloat16 ? 2 : 1;
}

int64_t padded_k(DType dtype, int64_t k) {
  const int64_t values = values_per_step(dtype);
  return (k + values - 1) / values * values;
}

int64_t num_panels(int64_t n) {
  return (n + kPanelLanes - 1) / kPanelLanes;
}

// Where row `row` has its first value; the value of index k is step_offset(k) further.
int64_t row_offset(DType dtype, int64_t row, int64_t k) {
  const int64_t panel = row / kPanelLanes;
  const int64_t lane = row % kPanelLanes;
  return panel * kPanelLanes * padded_k(dtype, k) + lane * values_per_step(dtype);
}

float to_float(float value) {
  return value;
}
float to_float(BFloat16 value) {
  return static_cast<float>(value);
}
float to_float(Float16 value) {
  return static_cast<float>(value);
}

void convert(float value, float& out) {
  out = value;
}
void convert(float value, BFloat16& out) {
  out = BFloat16(value);
}
void convert(float value, Float16& out) {
  out = Float16(value);
}

// Columns are visited in blocks so that the lines a block touches, 64 lanes of it, stay in the
// cache until the panel's other rows have filled them.
constexpr int64_t kPackBlock = 256;

template <typename To, typename From>
void pack(To* packed, DType dtype, int64_t first_row, const Tensor& source, int64_t k) {
  const int64_t values = values_per_step(dtype);
  const int64_t end = first_row + source.dim(0);
  for (int64_t begin = first_row; begin < end;) {
    const int64_t panel_end = std::min(end, (begin / kPanelLanes + 1) * kPanelLanes);
    for (int64_t k0 = 0; k0 < k; k0 += kPackBlock) {
      const int64_t k1 = std::min(k, k0 + kPackBlock);
      for (int64_t row = begin; row < panel_end; ++row) {
        const From* in = source.row<From>(row - first_row);
        To* out = packed + row_offset(dtype, row, k);
        for (int64_t i = k0; i < k1; ++i) {
          convert(to_float(in[i]), out[i / values * values * kPanelLanes + i % values]);
        }
      }
    }
    begin = panel_end;
  }
}

template <typename To>
void pack_from(To* packed, DType dtype, int64_t first_row, const Tensor& source, int64_t k) {
  switch (source.dtype()) {
    case DType::kFloat32:
      return pack<To, float>(packed, dtype, first_row, source, k);
    case DType::kBFloat16:
      return pack<To, BFloat16>(packed, dtype, first_row, source, k);
    case DType::kFloat16:
      return pack<To, Float16>(packed, dtype, first_row, source, k);
    default:
      check(false, "a weight is packed from float32, bfloat16 or float16");
  }
}

template <typename T>
void unpack(const T* packed, DType dtype, int64_t row, int64_t k, float* out) {
  const int64_t values = values_per_step(dtype);
  const T* in = packed + row_offset(dtype, row, k);
  for (int64_t i = 0; i < k; ++i)
    out[i] = to_float(in[i / values * values * kPanelLanes + i % values]);
}

template <typename To, typename From>
void copy_rows_as(const Tensor& source, To* to) {
  for (int64_t row = 0; row < source.dim(0); ++row, to += source.dim(1)) {
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to, source.row<From>(row), static_cast<size_t>(source.dim(1)) * sizeof(To));
    } else {
      const From* in = source.row<From>(row);
      for (int64_t i = 0; i < source.dim(1); ++i) convert(to_float(in[i]), to[i]);
    }
  }
}

template <typename To>
void copy_rows_to(const Tensor& source, To* to) {
  switch (source.dtype()) {
    case DType::kFloat32:
      return copy_rows_as<To, float>(source, to);
    case DType::kBFloat16:
      return copy_rows_as<To, BFloat16>(source, to);
    case DType::kFloat16:
      return copy_rows_as<To, Float16>(source, to);
    default:
      check(false, "a weight is made from float32, bfloat16 or float16");
  }
}

// Row major, converted.
void copy_rows(const Tensor& source, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kBFloat16:
      return copy_rows_to(source, reinterpret_cast<BFloat16*>(to));
    case DType::kFloat16:
      return copy_rows_to(source, reinterpret_cast<Float16*>(to));
    default:
      return copy_rows_to(source, reinterpret_cast<float*>(to));
  }
}

}  // namespace

size_t Weight::bytes(DType dtype, int64_t n, int64_t k, DeviceType device) {
  if (device != DeviceType::kCpu) return static_cast<size_t>(n * k) * size_of(dtype);
  return static_cast<size_t>(num_panels(n) * kPanelLanes * padded_k(dtype, k)) * size_of(dtype);
}

Weight::Weight(DType dtype, int64_t n, int64_t k, const Device& device)
    : dtype_(dtype), n_(n), k_(k), device_(device) {
  check(dtype == DType::kFloat32 || dtype == DType::kBFloat16 ||
            (dtype == DType::kFloat16 && !device.is_cpu()),
        "a weight is float32 or bfloat16, or on a GPU float16");
  check(n >= 1 && k >= 1, "a weight has at least one row and one column");
  buffer_ = Buffer(bytes(dtype, n, k, device.type), device);
}

void Weight::pack_rows(int64_t first_row, const Tensor& source) {
  check(source.rank() == 2 && source.dim(1) == k_, "packed rows have the weight's length");
  check(first_row >= 0 && first_row + source.dim(0) <= n_, "packed rows lie inside the weight");
  if (!device_.is_cpu()) {
    const size_t row_bytes = static_cast<size_t>(k_) * size_of(dtype_);
    device_.memory->upload(buffer_.data() + static_cast<size_t>(first_row) * row_bytes,
                           static_cast<size_t>(source.dim(0)) * row_bytes,
                           [&](std::byte* to) { copy_rows(source, dtype_, to); });
    return;
  }
  if (dtype_ == DType::kBFloat16) {
    pack_from(reinterpret_cast<BFloat16*>(buffer_.data()), dtype_, first_row, source, k_);
  } else {
    pack_from(reinterpret_cast<float*>(buffer_.data()), dtype_, first_row, source, k_);
  }
}

void Weight::unpack_row(int64_t row, float* out) const {
  check(device_.is_cpu(), "rows are read back on the CPU alone");
  check(row >= 0 && row < n_, "the row lies inside the weight");
  if (dtype_ == DType::kBFloat16) {
    unpack(reinterpret_cast<const BFloat16*>(buffer_.data()), dtype_, row, k_, out);
  } else {
    unpack(reinterpret_cast<const float*>(buffer_.data()), dtype_, row, k_, out);
  }
}

}  // namespace quire::ops
