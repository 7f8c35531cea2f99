#include "ops/weight.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cpu/quantise.h"
#include "ops/cpu/weight_panels.h"
#include "ops/group_tiles.h"

namespace quire::ops {
namespace {

template <typename To, typename From>
void copy_rows_as(const Tensor& source, To* to) {
  for (int64_t row = 0; row < source.dim(0); ++row, to += source.dim(1)) {
    const From* in = source.row<From>(row);
    if constexpr (std::is_same_v<To, From>) {
      std::memcpy(to, in, static_cast<size_t>(source.dim(1)) * sizeof(To));
    } else {
      for (int64_t i = 0; i < source.dim(1); ++i) to[i] = To(static_cast<float>(in[i]));
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
      check(false, "a dense weight is made from float32, bfloat16 or float16");
  }
}

// Row major, converted.
void copy_rows(const Tensor& source, DType dtype, std::byte* to) {
  switch (dtype) {
    case DType::kBFloat16:
      return copy_rows_to(source, reinterpret_cast<BFloat16*>(to));
    case DType::kFloat16:
      return copy_rows_to(source, reinterpret_cast<Float16*>(to));
    case DType::kFloat8E4M3:
      return copy_rows_as<Float8E4M3, Float8E4M3>(source, reinterpret_cast<Float8E4M3*>(to));
    default:
      return copy_rows_to(source, reinterpret_cast<float*>(to));
  }
}

// Rows and columns of a float8 weight's scales.
struct ScaleShape {
  int64_t rows = 0;
  int64_t columns = 0;
};

ScaleShape scale_shape(const WeightFormat& format, int64_t n, int64_t k) {
  if (format.kind != WeightKind::kFloat8) return {};
  if (format.group_size == 0) return {n, 1};
  return {ceil_div(n, format.group_size), ceil_div(k, format.group_size)};
}

bool is_dense_dtype(DType dtype, const Device& device) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 ||
         (dtype == DType::kFloat16 && !device.is_cpu());
}

void check_format(const WeightFormat& format, const Device& device) {
  switch (format.kind) {
    case WeightKind::kDense:
      return check(is_dense_dtype(format.dtype, device),
                   "a dense weight is float32 or bfloat16, or on a GPU float16");
    case WeightKind::kFloat8:
      return check(format == WeightFormat::float8() ||
                       (format == WeightFormat::float8(kFloat8Block) && !device.is_cpu()),
                   "a float8 weight has a scale for each output, or on a GPU for each block");
    case WeightKind::kInt8:
    case WeightKind::kInt4:
      check(format.dtype == DType::kUInt8 && is_group_size(format.group_size),
            "integers are bytes in groups of 16, 32, 64 or 128, or of a whole row");
      check(!format.is_unsigned || format.kind == WeightKind::kInt4, "unsigned integers are int4");
      check(format.scale_dtype == DType::kFloat32 || format.scale_dtype == DType::kBFloat16 ||
                (format.scale_dtype == DType::kInt8 && format.group_size != 0),
            "scales of integers are float32, bfloat16, or of groups int8");
      return check(device.is_cpu() || has_group_tiles(format),
                   "a GPU takes groups of at least 32 with scales of float32, and rounds nothing");
  }
}

}  // namespace

size_t weight_data_bytes(const WeightFormat& format, int64_t n, int64_t k, DeviceType device) {
  const bool on_cpu = device == DeviceType::kCpu;
  if (format.is_integer() && on_cpu) return group_panel_bytes(group_layout(format, k), n);
  if (format.is_integer()) return static_cast<size_t>(group_tiles(format, n, k).bytes());
  if (on_cpu) return panel_bytes(format.dtype, n, k);
  return static_cast<size_t>(n * k) * size_of(format.dtype);
}

Weight::Weight(WeightFormat format, int64_t n, int64_t k, const Device& device, size_t least_bytes)
    : format_(format), n_(n), k_(k), device_(device) {
  check_format(format, device);
  check(n >= 1 && k >= 1, "a weight has at least one row and one column");
  data_ = Buffer(std::max(weight_data_bytes(format, n, k, device.type), least_bytes), device);
  if (format.is_integer() && !device.is_cpu()) host_tiles_ = std::make_unique<HostTiles>();
  const ScaleShape scales = scale_shape(format, n, k);
  if (scales.rows == 0) return;
  scales_ = Buffer(static_cast<size_t>(scales.rows * scales.columns) * sizeof(float), device);
}

void Weight::pack_rows(int64_t first_row, const Tensor& source) {
  check(!format_.is_integer(), "integers are packed with their scales");
  check(source.rank() == 2 && source.dim(1) == k_, "packed rows have the weight's length");
  check(first_row >= 0 && first_row + source.dim(0) <= n_, "packed rows lie inside the weight");
  if (device_.is_cpu()) return pack_panel_rows(dtype(), first_row, source, data_.data());
  const size_t row_bytes = static_cast<size_t>(k_) * size_of(dtype());
  device_.memory->upload(data_.data() + static_cast<size_t>(first_row) * row_bytes,
                         static_cast<size_t>(source.dim(0)) * row_bytes,
                         [&](std::byte* to) { copy_rows(source, dtype(), to); });
}

void Weight::set_scales(int64_t first_row, const Tensor& source) {
  check(format_.kind == WeightKind::kFloat8, "the weight's format has scales");
  const ScaleShape shape = scale_shape(format_, n_, k_);
  check(source.rank() == 2 && source.dim(1) == shape.columns, "rows have all of their scales");
  check(first_row >= 0 && first_row + source.dim(0) <= shape.rows, "scales lie inside the weight");
  const size_t row_bytes = static_cast<size_t>(shape.columns) * sizeof(float);
  std::byte* to = scales_.data() + static_cast<size_t>(first_row) * row_bytes;
  if (device_.is_cpu()) return copy_rows(source, DType::kFloat32, to);
  device_.memory->upload(to, static_cast<size_t>(source.dim(0)) * row_bytes,
                         [&](std::byte* from) { copy_rows(source, DType::kFloat32, from); });
}

void Weight::pack_groups(int64_t first_row, const GroupedRows& source) {
  check(format_.is_integer(), "the weight is of integers");
  check(first_row >= 0 && source.rows >= 0 && first_row + source.rows <= n_,
        "packed rows lie inside the weight");
  check((source.offsets != nullptr) == format_.has_offsets,
        "rows have offsets where the weight's format has them");
  check((source.scale_factors != nullptr) == (format_.scale_dtype == DType::kInt8) &&
            (source.offset_factors != nullptr) ==
                (format_.scale_dtype == DType::kInt8 && format_.has_offsets),
        "rows have int8 scales where the weight's format has them");
  if (device_.is_cpu()) {
    pack_group_rows(group_layout(format_, k_), first_row, source, data_.data());
  } else {
    pack_tile_rows(group_tiles(format_, n_, k_), first_row, source, host_tiles());
  }
}

std::byte* Weight::host_tiles() {
  check(host_tiles_ != nullptr, "integers of a GPU are packed before finish_packing()");
  std::call_once(host_tiles_->made, [&] {
    host_tiles_->bytes.resize(weight_data_bytes(format_, n_, k_, device_.type));
  });
  return host_tiles_->bytes.data();
}

void Weight::finish_packing(ThreadPool& pool) {
  if (host_tiles_ == nullptr) return;
  const std::vector<std::byte>& bytes = host_tiles_->bytes;
  constexpr size_t kPiece = size_t{2} << 20;
  pool.parallel_for(static_cast<int64_t>(ceil_div(bytes.size(), kPiece)), [&](int64_t i, int) {
    const size_t begin = static_cast<size_t>(i) * kPiece;
    const size_t size = std::min(kPiece, bytes.size() - begin);
    device_.memory->upload(data_.data() + begin, size,
                           [&](std::byte* to) { std::memcpy(to, bytes.data() + begin, size); });
  });
  host_tiles_.reset();
}

void Weight::set_permutation(std::span<const int32_t> permutation) {
  check(format_.is_integer(), "the weight is of integers");
  check(static_cast<int64_t>(permutation.size()) == k_, "a permutation has each input once");
  check(device_.is_cpu() || permutation_.size() != 0, "there is room for a GPU's permutation");
  if (device_.is_cpu()) reserve_permutation();
  is_permuted_ = true;
  const auto copy = [&](std::byte* to) {
    std::memcpy(to, permutation.data(), permutation.size_bytes());
  };
  if (device_.is_cpu()) return copy(permutation_.data());
  device_.memory->upload(permutation_.data(), permutation.size_bytes(), copy);
}

void Weight::become_dense(DType dtype) {
  check(format_.is_integer() && weight_data_bytes(dtype, n_, k_, device_.type) <= data_.size(),
        "the memory of integers has room for a dense weight");
  format_ = dtype;
  is_permuted_ = false;
  host_tiles_.reset();
}

void Weight::add_offsets() {
  WeightFormat with_offsets = format_;
  with_offsets.has_offsets = true;
  check(
      format_.is_integer() && weight_data_bytes(with_offsets, n_, k_, device_.type) <= data_.size(),
      "the memory of integers has room for offsets");
  format_ = with_offsets;
}

void Weight::reserve_permutation() {
  permutation_ = Buffer(static_cast<size_t>(k_) * sizeof(int32_t), device_);
}

void Weight::quantise_rows(int64_t first_row, const Tensor& source) {
  if (format_ == WeightFormat::float8()) return quantise_to_float8(first_row, source);
  check(format_.is_integer(),
        "the weight is of integers or of float8 with a scale for each output");
  check(source.rank() == 2 && source.dim(1) == k_, "packed rows have the weight's length");
  check(first_row >= 0 && first_row + source.dim(0) <= n_, "packed rows lie inside the weight");
  ops::quantise_rows(
      group_layout(format_, k_), source,
      [&](int64_t row, const GroupedRows& rounded) { pack_groups(first_row + row, rounded); });
}

void Weight::quantise_to_float8(int64_t first_row, const Tensor& source) {
  check(source.rank() == 2 && source.dim(1) == k_, "packed rows have the weight's length");
  const int64_t rows = source.dim(0);
  std::vector<Float8E4M3> numbers(static_cast<size_t>(rows * k_));
  std::vector<float> scales(static_cast<size_t>(rows));
  round_rows_to_float8(source, numbers.data(), scales.data());
  pack_rows(first_row, Tensor(numbers.data(), DType::kFloat8E4M3, {rows, k_}));
  set_scales(first_row, Tensor(scales.data(), DType::kFloat32, {rows, 1}));
}

void Weight::unpack_row(int64_t row, float* out) const {
  check(device_.is_cpu(), "rows are read back on the CPU only");
  check(row >= 0 && row < n_, "the row lies inside the weight");
  if (format_.is_integer()) return unpack_integers(row, out);
  unpack_panel_row(dtype(), row, k_, data(), out);
  if (format_.is_dense()) return;
  for (int64_t i = 0; i < k_; ++i) out[i] *= scales()[row];
}

void Weight::unpack_integers(int64_t row, float* out) const {
  const GroupLayout layout = group_layout(format_, k_);
  if (permutation() == nullptr) return unpack_group_row(layout, row, data(), out);
  std::vector<float> values(static_cast<size_t>(k_));
  unpack_group_row(layout, row, data(), values.data());
  for (int64_t i = 0; i < k_; ++i) out[permutation()[i]] = values[static_cast<size_t>(i)];
}

}  // namespace quire::ops
