#include "loader/integer_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "quire/error.h"

namespace quire {
namespace {

template <typename T>
std::vector<int64_t> read_integers(const CheckpointTensor& tensor) {
  std::vector<int64_t> values(tensor.bytes / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, tensor.data + i * sizeof(T), sizeof(T));
    values[i] = value;
  }
  return values;
}

std::vector<int64_t> read_integers(const CheckpointTensor& tensor, DType dtype) {
  if (dtype == DType::kInt64) return read_integers<int64_t>(tensor);
  check(dtype == DType::kInt32, "groups and shapes are int32 or int64");
  return read_integers<int32_t>(tensor);
}

// Whether they say that inputs are in the order of their groups.
bool are_unset(const std::vector<int64_t>& groups) {
  return std::ranges::all_of(groups, [](int64_t group) { return group == -1; });
}

void check_range(const CheckpointTensor& tensor, const std::vector<int64_t>& groups,
                 int64_t num_groups) {
  const auto wrong = std::ranges::find_if(
      groups, [num_groups](int64_t group) { return group < 0 || group >= num_groups; });
  if (wrong == groups.end()) return;
  throw Error(fmt::format("{}: the tensor {} holds {} at index {}; expected a group from 0 to {}.",
                          tensor.file, tensor.name, *wrong, wrong - groups.begin(),
                          num_groups - 1));
}

// Inputs are put in the order of their groups, so a group begins at a multiple where all before it
// have a multiple.
void check_sizes(const CheckpointTensor& tensor, const std::vector<int64_t>& groups,
                 const IntegerRule& rule, IndexRange inputs) {
  std::vector<int64_t> sizes(static_cast<size_t>(rule.num_groups));
  for (int64_t input = inputs.begin; input < inputs.end; ++input) {
    ++sizes[static_cast<size_t>(groups[static_cast<size_t>(input)])];
  }
  int64_t first = 0;  // of the group's inputs, in that order
  for (size_t group = 0; group < sizes.size(); first += sizes[group++]) {
    if (sizes[group] == 0 || first % rule.group_multiple == 0) continue;
    throw Error(fmt::format(
        "{}: the tensor {} puts {} inputs into groups before group {}; expected a multiple of {}, "
        "as a GPU needs it. --dtype float32 and --device cpu take groups of any sizes.",
        tensor.file, tensor.name, first, group, rule.group_multiple));
  }
}

}  // namespace

void check_integers(const CheckpointTensor& tensor, DType dtype, const IntegerRule& rule,
                    IndexRange inputs) {
  if (rule.num_groups == 0 && rule.shape.empty()) return;
  const std::vector<int64_t> values = read_integers(tensor, dtype);
  if (!rule.shape.empty() && values != rule.shape) {
    throw Error(fmt::format(
        "{}: the tensor {} holds [{}]; config.json makes the layer's shape [{}].", tensor.file,
        tensor.name, fmt::join(values, ", "), fmt::join(rule.shape, ", ")));
  }
  if (rule.num_groups == 0 || (rule.may_be_unset && are_unset(values))) return;
  check_range(tensor, values, rule.num_groups);
  if (rule.group_multiple > 0) check_sizes(tensor, values, rule, inputs);
}

}  // namespace quire
