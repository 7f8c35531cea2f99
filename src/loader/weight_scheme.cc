#include "loader/weight_scheme.h"

#include <fmt/format.h>

#include "base/ceil_div.h"
#include "base/check.h"
#include "loader/gguf_blocks.h"
#include "quire/error.h"

namespace quire {
namespace {

using Of = LeafAxis::Of;

// Blocks of 0 are the whole axis: one entry.
LeafAxis outputs_by(int64_t block) {
  return block == 0 ? LeafAxis{} : LeafAxis{.of = Of::kOutputs, .block = block};
}

LeafAxis inputs_by(int64_t block) {
  return block == 0 ? LeafAxis{} : LeafAxis{.of = Of::kInputs, .block = block};
}

// Groups are few, and which of them a rank's inputs are of may be in no order: ranks take all.
LeafAxis groups_by(int64_t group_inputs) {
  LeafAxis axis = inputs_by(group_inputs);
  axis.split = false;
  return axis;
}

int64_t numbers_in_word(const WeightScheme& scheme) {
  return 32 / scheme.bits;
}

SchemeLeaf group_leaf(std::string name, bool optional) {
  return {.role = LeafRole::kGroupOfInput,
          .name = std::move(name),
          .dtypes = {DType::kInt32},
          .rows = inputs_by(1),
          .columns = {},
          .is_vector = true,
          .optional = optional};
}

SchemeLeaf leaf(LeafRole role, std::string name, std::vector<DType> dtypes, LeafAxis rows,
                LeafAxis columns) {
  return {.role = role,
          .name = std::move(name),
          .dtypes = std::move(dtypes),
          .rows = rows,
          .columns = columns};
}

// Of compressed-tensors and of float8.
SchemeLeaf scale_leaf(const WeightScheme& scheme, std::string name) {
  SchemeLeaf scales = leaf(LeafRole::kScales, std::move(name), dense_dtypes(),
                           outputs_by(scheme.group_outputs), groups_by(scheme.group_inputs));
  scales.is_vector = scheme.group_outputs == 0 && scheme.group_inputs == 0;
  return scales;
}

// A matrix whose tensors have inputs, or groups of them, as rows: GPTQ's and AWQ's.
std::vector<SchemeLeaf> transposed_leaves(const WeightScheme& scheme) {
  const int64_t words = numbers_in_word(scheme);
  const LeafAxis groups = groups_by(scheme.group_inputs);
  const bool is_awq = scheme.layout == WeightLayout::kAwq;
  std::vector<SchemeLeaf> leaves = {
      leaf(LeafRole::kNumbers, "qweight", {DType::kInt32}, inputs_by(is_awq ? 1 : words),
           outputs_by(is_awq ? words : 1)),
      leaf(LeafRole::kScales, "scales", dense_dtypes(), groups, outputs_by(1)),
      leaf(LeafRole::kZeroPoints, "qzeros", {DType::kInt32}, groups, outputs_by(words))};
  if (!is_awq) leaves.push_back(group_leaf("g_idx", !scheme.act_order));
  return leaves;
}

std::vector<SchemeLeaf> packed_leaves(const WeightScheme& scheme) {
  const int64_t words = numbers_in_word(scheme);
  std::vector<SchemeLeaf> leaves = {
      leaf(LeafRole::kNumbers, "weight_packed", {DType::kInt32}, outputs_by(1), inputs_by(words)),
      scale_leaf(scheme, "weight_scale")};
  if (!scheme.symmetric) {
    leaves.push_back(leaf(LeafRole::kZeroPoints, "weight_zero_point", {DType::kInt32},
                          outputs_by(words), groups_by(scheme.group_inputs)));
  }
  if (scheme.act_order) leaves.push_back(group_leaf("weight_g_idx", /*optional=*/false));
  leaves.push_back({.role = LeafRole::kShape,
                    .name = "weight_shape",
                    .dtypes = {DType::kInt64, DType::kInt32},
                    .rows = {.entries = 2},
                    .columns = {},
                    .is_vector = true,
                    .optional = true});
  return leaves;
}

// A number an element, and scales beside them.
std::vector<SchemeLeaf> plain_leaves(const WeightScheme& scheme) {
  const bool is_float = scheme.layout == WeightLayout::kFloat8;
  const DType dtype = is_float ? DType::kFloat8E4M3 : DType::kInt8;
  std::vector<SchemeLeaf> leaves = {
      leaf(LeafRole::kNumbers, "weight", {dtype}, outputs_by(1), inputs_by(1)),
      scale_leaf(scheme, is_float ? scheme.scale_leaf : "weight_scale")};
  if (!scheme.symmetric) {
    SchemeLeaf zeros = leaves.back();
    zeros.role = LeafRole::kZeroPoints;
    zeros.name = "weight_zero_point";
    zeros.dtypes = {DType::kInt8};
    leaves.push_back(std::move(zeros));
  }
  return leaves;
}

void check_multiple(std::string_view module, const WeightScheme& scheme, std::string_view what,
                    int64_t size, int64_t of) {
  if (size % of == 0) return;
  throw Error(fmt::format("{}: the layer has {} {}, but its scheme ({}) stores multiples of {}.",
                          module, size, what, scheme.describe(), of));
}

// The tools that write GPTQ end a row with a group of fewer inputs; those of the other methods
// write no such layer.
void check_whole_groups(std::string_view module, const WeightScheme& scheme, int64_t k) {
  if (scheme.group_inputs > 0) check_multiple(module, scheme, "inputs", k, scheme.group_inputs);
}

void check_size(const WeightScheme& scheme, std::string_view module, int64_t n, int64_t k) {
  switch (scheme.layout) {
    case WeightLayout::kGptq:
      check_multiple(module, scheme, "inputs", k, numbers_in_word(scheme));
      return check_multiple(module, scheme, "outputs", n, numbers_in_word(scheme));
    case WeightLayout::kAwq:
      check_whole_groups(module, scheme, k);
      return check_multiple(module, scheme, "outputs", n, numbers_in_word(scheme));
    case WeightLayout::kPacked:
    case WeightLayout::kInt8:
      return check_whole_groups(module, scheme, k);
    case WeightLayout::kFloat8:
    case WeightLayout::kGgufBlocks:
      return;
  }
}

std::string describe_granularity(const WeightScheme& scheme) {
  if (scheme.group_outputs == 0) return "one scale";
  if (scheme.group_outputs > 1) {
    return fmt::format("blocks of {} x {}", scheme.group_outputs, scheme.group_inputs);
  }
  if (scheme.group_inputs == 0) return "a scale for each output";
  return fmt::format("groups of {}", scheme.group_inputs);
}

}  // namespace

WeightScheme WeightScheme::gguf_blocks(const GgufType& type) {
  const GgufIntegers* integers = gguf_integers(type);
  check(integers != nullptr, "the type's blocks are integers");
  return {.name = fmt::format("GGUF {}", type.name),
          .layout = WeightLayout::kGgufBlocks,
          .bits = integers->bits,
          .group_inputs = integers->group_size,
          .symmetric = !integers->has_offsets,
          .block_type = &type};
}

uint32_t WeightScheme::symmetric_zero_points() const {
  const uint32_t ones = bits == 4 ? 0x11111111u : 0x01010101u;
  const uint32_t half_range = ones << (bits - 1);
  return zeros_less_one ? half_range - ones : half_range;
}

bool WeightScheme::is_integer() const {
  return layout != WeightLayout::kFloat8;
}

std::string WeightScheme::describe() const {
  if (layout == WeightLayout::kGgufBlocks) return name;
  const std::string numbers =
      layout == WeightLayout::kFloat8 ? "float8 e4m3" : fmt::format("{} bits", bits);
  return fmt::format("{}, {}, {}{}{}", name, numbers, describe_granularity(*this),
                     is_integer() && !symmetric ? ", zero points" : "",
                     act_order ? ", act-order" : "");
}

int64_t LeafAxis::extent(int64_t n, int64_t k) const {
  if (of == Of::kNeither) return entries;
  return ceil_div(of == Of::kOutputs ? n : k, block);
}

IndexRange LeafAxis::share(int64_t n, int64_t k, IndexRange outputs, IndexRange inputs) const {
  if (of == Of::kNeither || !split) return {0, extent(n, k)};
  const IndexRange& taken = of == Of::kOutputs ? outputs : inputs;
  return {taken.begin / block, ceil_div(taken.end, block)};
}

std::vector<SchemeLeaf> leaves_of(const WeightScheme& scheme, std::string_view module, int64_t n,
                                  int64_t k) {
  check_size(scheme, module, n, k);
  switch (scheme.layout) {
    case WeightLayout::kGptq:
    case WeightLayout::kAwq:
      return transposed_leaves(scheme);
    case WeightLayout::kPacked:
      return packed_leaves(scheme);
    case WeightLayout::kInt8:
    case WeightLayout::kFloat8:
      return plain_leaves(scheme);
    case WeightLayout::kGgufBlocks:
      return {leaf(LeafRole::kNumbers, "weight", {DType::kFloat32}, outputs_by(1), inputs_by(1))};
  }
  return {};
}

}  // namespace quire
