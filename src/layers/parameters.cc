#include "layers/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "layers/gguf_weight.h"
#include "quire/error.h"

namespace quire {

namespace {

// Of a GGUF file's tensor: parts with the types of their blocks, which are packed as they come
// where `keeps_blocks`, and else dequantised.
std::vector<ParameterTensor> gguf_tensors(const MatrixFormat& format,
                                          std::vector<ParameterPart> parts, bool keeps_blocks) {
  for (size_t i = 0; keeps_blocks && i < parts.size(); ++i) {
    const StoredModule& module = format.modules[format.modules.size() == 1 ? 0 : i];
    parts[i].block_type = module.scheme.block_type;
  }
  return {{.leaf = "weight", .dtypes = dense_dtypes(), .parts = std::move(parts)}};
}

// "GGUF Q4_K and Q6_K".
std::string describe_blocks(const MatrixFormat& format) {
  std::set<std::string_view> types;
  for (const StoredModule& module : format.modules) types.insert(module.scheme.block_type->name);
  return fmt::format("GGUF {}", fmt::join(types, " and "));
}

// Groups of integers that dense matrices are rounded to. A GPU has its scales in float32.
constexpr int64_t kQuantisedGroup = 32;
constexpr int64_t kQuantisedGroupOnGpu = 128;

ops::WeightFormat format_of_dense(const Placement& place, int64_t n, int64_t k) {
  if (place.rounding == WeightRounding::kNone) return place.dtype;
  if (place.rounding == WeightRounding::kFloat8) {
    return multiplies_float8(place, n, k) ? ops::WeightFormat::float8()
                                          : ops::WeightFormat(place.dtype);
  }
  const bool to_int4 = place.rounding == WeightRounding::kInt4;
  if (!place.device.is_cpu()) {
    const auto on_gpu = ops::WeightFormat::integers(to_int4 ? 4 : 8, kQuantisedGroupOnGpu, to_int4);
    return multiplies_integers(place, on_gpu, k) ? on_gpu : ops::WeightFormat(place.dtype);
  }
  auto format = ops::WeightFormat::integers(to_int4 ? 4 : 8, kQuantisedGroup,
                                            /*has_offsets=*/to_int4, DType::kBFloat16);
  format.rounds_activations = place.dtype != DType::kFloat32;
  return format;
}

ops::WeightFormat computed_format(const Placement& place, const MatrixFormat& format, int64_t n,
                                  int64_t k, const std::vector<ParameterPart>& parts) {
  const bool is_rounded = format.is_gguf() && place.rounding != WeightRounding::kNone;
  if (format.is_dense() || is_rounded) return format_of_dense(place, n, k);
  return stored_format(place, format.modules, parts);
}

bool has_act_order(const StoredModule& module) {
  return module.scheme.act_order;
}

// GPTQ has a g_idx without act-order, too, and some files have their inputs in another order then.
bool may_store_order(const StoredModule& module) {
  return has_act_order(module) || module.scheme.layout == WeightLayout::kGptq;
}

// Whether a GPU keeps room for a dense matrix, as its memory is planned before the checkpoint is
// read: several modules may have their inputs in different orders.
bool keeps_room_for_dense(const Placement& place, const MatrixFormat& format) {
  return !place.device.is_cpu() && format.modules.size() > 1 &&
         std::any_of(format.modules.begin(), format.modules.end(), has_act_order);
}

// GPTQ has zero points even where its config says that they are symmetric, and some files' are not.
bool may_store_zero_points(const WeightScheme& scheme) {
  return scheme.layout == WeightLayout::kGptq;
}

ops::Weight make_weight(const Placement& place, const MatrixFormat& format, int64_t n, int64_t k,
                        const std::vector<ParameterPart>& parts) {
  const ops::WeightFormat computed = computed_format(place, format, n, k, parts);
  const auto bytes_as = [&](const ops::WeightFormat& other) {
    return ops::weight_data_bytes(other, n, k, place.device.type);
  };
  size_t room = keeps_room_for_dense(place, format) ? bytes_as(place.dtype) : 0;
  const bool may_have_offsets =
      std::any_of(format.modules.begin(), format.modules.end(),
                  [](const StoredModule& module) { return may_store_zero_points(module.scheme); });
  if (computed.is_integer() && !place.device.is_cpu() && may_have_offsets) {
    ops::WeightFormat with_offsets = computed;
    with_offsets.has_offsets = true;
    room = std::max(room, bytes_as(with_offsets));
  }
  return ops::Weight(computed, n, k, place.device, room);
}

// Whether what is stored is what is computed with.
bool is_computed_as_stored(const MatrixFormat& format, const ops::WeightFormat& computed) {
  return computed == ops::WeightFormat::float8() &&
         std::all_of(format.modules.begin(), format.modules.end(),
                     [](const StoredModule& module) { return module.scheme.group_outputs == 1; });
}

constexpr const char* kQuantisedReason =
    ", as quantization_config in config.json quantises this layer";

std::vector<ParameterTensor> dense_tensors(std::vector<ParameterPart> parts) {
  return {{.leaf = "weight",
           .dtypes = dense_dtypes(),
           .parts = std::move(parts),
           .reason = ", as config.json does not quantise this layer (quantization_config and its "
                     "ignore list)"}};
}

// The axis that the outputs of fused modules follow each other on.
FusedAlong fused_axis(const SchemeLeaf& leaf) {
  if (leaf.rows.of == LeafAxis::Of::kOutputs) return FusedAlong::kRows;
  return leaf.columns.of == LeafAxis::Of::kOutputs ? FusedAlong::kColumns : FusedAlong::kCommon;
}

ParameterTensor tensor_of(const SchemeLeaf& leaf, const WeightScheme& scheme) {
  ParameterTensor tensor{.leaf = leaf.name,
                         .dtypes = leaf.dtypes,
                         .parts = {},
                         .fused_along = fused_axis(leaf),
                         .is_scales = leaf.role == LeafRole::kScales,
                         .may_be_zero = scheme.is_integer(),
                         .optional = leaf.optional,
                         .parameters_each = leaf.numbers_each(),
                         .reason = kQuantisedReason};
  if (leaf.role == LeafRole::kScales) {
    const float largest = scheme.is_integer() ? static_cast<float>(1 << (scheme.bits - 1)) : 448.0f;
    tensor.dummy_init = DummyInit::kConstant;
    tensor.dummy_value = kDummyBound / largest;
  } else if (leaf.role == LeafRole::kGroupOfInput || leaf.role == LeafRole::kShape) {
    // Random bits would be no groups and no shape.
    tensor.dummy_init = DummyInit::kAbsent;
  } else if (leaf.role == LeafRole::kZeroPoints && scheme.symmetric) {
    tensor.dummy_init = DummyInit::kWord;
    tensor.dummy_word = scheme.symmetric_zero_points();
  }
  return tensor;
}

bool have_same_leaves(const StoredMatrix& a, const StoredMatrix& b) {
  return std::equal(a.leaves().begin(), a.leaves().end(), b.leaves().begin(), b.leaves().end(),
                    [](const SchemeLeaf& x, const SchemeLeaf& y) {
                      return x.name == y.name && x.dtypes == y.dtypes;
                    });
}

// Throws unless the parts of a module that is one tensor begin where its leaves can be cut.
void check_cuts(const StoredModule& module, const std::vector<ParameterPart>& parts) {
  int64_t first_output = 0;
  for (const ParameterPart& part : parts) {
    for (const SchemeLeaf& leaf :
         leaves_of(module.scheme, module.name, part.shape[0], part.shape[1])) {
      for (const LeafAxis& axis : {leaf.rows, leaf.columns}) {
        if (axis.of != LeafAxis::Of::kOutputs || first_output % axis.block == 0) continue;
        throw Error(fmt::format(
            "{}: one of the layers that are fused here begins at output {}, but {} of its scheme "
            "({}) is stored for each {} outputs; expected a multiple of that.",
            module.name, first_output, leaf.name, module.scheme.describe(), axis.block));
      }
    }
    first_output += part.shape[0];
  }
}

}  // namespace

MatrixParameter::MatrixParameter(const Placement& place, const MatrixFormat& format, int64_t n,
                                 int64_t k, std::vector<ParameterPart> parts)
    : place_(place),
      weight_(make_weight(place, format, n, k, parts)),
      has_room_for_dense_(keeps_room_for_dense(place, format)) {
  reserve_permutation(format);
  if (format.is_gguf()) {
    stored_as_ = describe_blocks(format);
    tensors_ =
        gguf_tensors(format, std::move(parts),
                     weight_.format().is_integer() && place.rounding == WeightRounding::kNone);
    return;
  }
  if (format.is_dense()) {
    tensors_ = dense_tensors(std::move(parts));
    return;
  }
  if (!is_computed_as_stored(format, weight_.format())) {
    stored_as_ = format.modules.front().scheme.describe();
  }
  make_stored_parts(format, parts);
  make_tensors();
}

void MatrixParameter::reserve_permutation(const MatrixFormat& format) {
  const bool may_be_permuted =
      weight_.format().is_integer() &&
      std::any_of(format.modules.begin(), format.modules.end(), may_store_order);
  if (may_be_permuted && !place_.device.is_cpu()) weight_.reserve_permutation();
}

void MatrixParameter::make_stored_parts(const MatrixFormat& format,
                                        const std::vector<ParameterPart>& parts) {
  const bool is_one = format.modules.size() == 1;
  check(is_one || format.modules.size() == parts.size(), "a part is a module, or all are one");
  if (is_one) check_cuts(format.modules.front(), parts);
  int64_t all_outputs = 0;
  for (const ParameterPart& part : parts) all_outputs += part.shape[0];
  for (size_t i = 0; i < parts.size(); ++i) {
    const StoredModule& module = format.modules[is_one ? 0 : i];
    const ParameterPart& part = parts[i];
    StoredShare share{.module = module.name,
                      .n = part.shape[0],
                      .k = part.shape[1],
                      .outputs = part.rows,
                      .inputs = part.columns,
                      .module_outputs = is_one ? all_outputs : part.shape[0]};
    stored_.push_back(
        {std::make_unique<StoredMatrix>(module.scheme, std::move(share)), part.first_row});
    if (have_same_leaves(*stored_.front().matrix, *stored_.back().matrix)) continue;
    throw Error(
        fmt::format("config.json: quantization_config stores {} as {} and {} as {}; "
                    "expected the same tensors of both, as the two are computed as one.",
                    format.modules.front().name, format.modules.front().scheme.describe(),
                    module.name, module.scheme.describe()));
  }
}

// A CPU, and a GPU that has room for it, computes with a dense matrix where groups don't fit.
bool MatrixParameter::needs_whole_groups() const {
  return weight_.format().is_integer() && !place_.device.is_cpu() && !has_room_for_dense_;
}

// Parts are kept apart: in each tensor they lie one below the other.
void MatrixParameter::make_tensors() {
  const StoredMatrix& first = *stored_.front().matrix;
  for (size_t leaf = 0; leaf < first.leaves().size(); ++leaf) {
    ParameterTensor tensor = tensor_of(first.leaves()[leaf], first.scheme());
    int64_t first_row = 0;
    for (const StoredPart& part : stored_) {
      tensor.parts.push_back(part.matrix->part(leaf));
      if (needs_whole_groups()) {
        tensor.parts.back().integers.group_multiple = weight_.format().group_size;
      }
      tensor.parts.back().first_row = first_row;
      first_row += tensor.parts.back().rows.size();
    }
    tensors_.push_back(std::move(tensor));
  }
}

size_t MatrixParameter::part_of(const ParameterSlice& slice) const {
  const std::vector<ParameterPart>& parts = tensors_[slice.tensor].parts;
  size_t part = parts.size() - 1;
  while (slice.first_row < parts[part].first_row) --part;
  return part;
}

void MatrixParameter::store(const ParameterSlice& slice) {
  if (stored_.empty()) {
    pack(slice);
  } else {
    store_part(slice);
  }
}

void MatrixParameter::store_part(const ParameterSlice& slice) {
  const size_t part = part_of(slice);
  const int64_t row = slice.first_row - tensors_[slice.tensor].parts[part].first_row;
  StoredMatrix& matrix = *stored_[part].matrix;
  const bool are_numbers = matrix.leaves()[slice.tensor].role == LeafRole::kNumbers;
  if (are_numbers && weight_.format().kind == ops::WeightKind::kFloat8) {
    weight_.pack_rows(stored_[part].first_row + row, slice.source);
  } else {
    matrix.store(slice.tensor, row, slice.source, slice.is_kept);
  }
}

void MatrixParameter::pack(const ParameterSlice& slice) {
  const ParameterPart& part = tensors_[slice.tensor].parts[part_of(slice)];
  if (part.block_type != nullptr && slice.source.dtype() == DType::kUInt8) {
    pack_gguf_rows(*part.block_type, slice.source, part.columns, slice.first_row, weight_);
  } else if (part.block_type != nullptr) {
    pack_dummy_rows(slice.source, slice.first_row, weight_);
  } else if (weight_.format().is_dense()) {
    weight_.pack_rows(slice.first_row, slice.source);
  } else {
    weight_.quantise_rows(slice.first_row, slice.source);
  }
}

void MatrixParameter::finish(ThreadPool& pool) {
  const auto is_padding = [](const StoredPart& part) {
    return part.matrix->share().outputs.size() == 0;
  };
  const auto needs_offsets = [&](const StoredPart& part) {
    return !is_padding(part) && may_store_zero_points(part.matrix->scheme()) &&
           part.matrix->has_zero_points();
  };
  // A dense weight takes numbers in any order.
  const bool is_packed = weight_.format().is_integer();
  if (is_packed && !place_.device.is_cpu() &&
      std::any_of(stored_.begin(), stored_.end(), needs_offsets)) {
    weight_.add_offsets();
  }
  std::vector<int32_t> order;
  bool fits = true;
  for (const StoredPart& part : stored_) {
    if (is_padding(part)) continue;
    part.matrix->set_groups();
    const std::vector<int32_t> own_order = input_order(*part.matrix);
    if (order.empty()) order = own_order;
    fits = fits && own_order == order && can_pack(*part.matrix, order, weight_.format());
  }
  const bool is_permuted = !std::is_sorted(order.begin(), order.end());
  fits = fits && (!is_permuted || place_.device.is_cpu() || weight_.may_be_permuted());
  if (is_packed && !fits) make_dense();
  if (weight_.format().is_integer() && is_permuted) weight_.set_permutation(order);
  for (const StoredPart& part : stored_) {
    if (!is_padding(part)) pack_stored(*part.matrix, order, part.first_row, weight_, pool);
    part.matrix->free();
  }
  weight_.finish_packing(pool);
}

void MatrixParameter::make_dense() {
  if (place_.device.is_cpu()) {
    weight_ = ops::Weight(place_.dtype, weight_.n(), weight_.k());
    return;
  }
  if (has_room_for_dense_) return weight_.become_dense(place_.dtype);
  const StoredMatrix& matrix = *stored_.front().matrix;
  throw Error(fmt::format(
      "{}: its tensors do not fit its scheme in config.json ({}): there are zero points where that "
      "has none, or inputs are in groups of other sizes or in another order; a GPU needs them as "
      "the scheme says, and --dtype float32 and --device cpu do not.",
      matrix.share().module, matrix.scheme().describe()));
}

VectorParameter::VectorParameter(const Placement& place, std::string leaf, int64_t n,
                                 DummyInit init, std::vector<ParameterPart> parts)
    : device_(place.device),
      buffer_(static_cast<size_t>(n) * sizeof(float), place.device),
      tensor_(buffer_.data(), DType::kFloat32, {n}),
      tensors_({{.leaf = std::move(leaf),
                 .dtypes = dense_dtypes(),
                 .parts = std::move(parts),
                 .dummy_init = init}}) {}

namespace {

template <typename T>
void copy_column(const Tensor& source, float* out) {
  for (int64_t i = 0; i < source.dim(0); ++i) out[i] = static_cast<float>(*source.row<T>(i));
}

}  // namespace

void copy_values(const Tensor& source, float* out) {
  switch (source.dtype()) {
    case DType::kFloat32:
      return copy_column<float>(source, out);
    case DType::kBFloat16:
      return copy_column<BFloat16>(source, out);
    case DType::kFloat16:
      return copy_column<Float16>(source, out);
    default:
      check(false, "weights are loaded from float32, bfloat16 or float16");
  }
}

void VectorParameter::store(const ParameterSlice& slice) {
  const Tensor& source = slice.source;
  check(
      source.rank() == 2 && source.dim(1) == 1 && slice.first_row + source.dim(0) <= tensor_.dim(0),
      "a vector is loaded as rows of one column");
  float* out = tensor_.data<float>() + slice.first_row;
  if (device_.is_cpu()) return copy_values(source, out);
  device_.memory->upload(
      reinterpret_cast<std::byte*>(out), static_cast<size_t>(source.dim(0)) * sizeof(float),
      [&](std::byte* from) { copy_values(source, reinterpret_cast<float*>(from)); });
}

}  // namespace quire
