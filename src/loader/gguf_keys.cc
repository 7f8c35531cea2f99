#include "loader/gguf_keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "loader/gguf_reader.h"
#include "loader/model_limits.h"
#include "quire/error.h"

namespace quire::loader_internal {

std::optional<int64_t> GgufKeys::integer_of_layers(std::string_view key, int64_t min,
                                                   int64_t max) const {
  const std::string name = whole(key);
  const auto found = header().metadata().find(name);
  if (found == header().metadata().end() || !found->second.is_array) {
    return integer(key, min, max);
  }
  const std::vector<int64_t> values = *header().integers(name, min, max);
  const bool is_one = !values.empty() && std::all_of(values.begin(), values.end(), [&](int64_t v) {
    return v == values.front();
  });
  if (!is_one) fail(key, "differs from layer to layer; expected one value for all of them");
  return values.front();
}

const GgufTensor* GgufKeys::tensor(std::string_view name) const {
  for (const GgufModel::Part& part : model_.parts()) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      if (tensor.name == name) return &tensor;
    }
  }
  return nullptr;
}

std::optional<std::vector<double>> GgufKeys::factors(std::string_view name, int64_t size) const {
  const GgufTensor* found = tensor(name);
  if (found == nullptr) return std::nullopt;
  const auto fail_tensor = [&](const std::string& what) {
    throw Error(fmt::format("{}: the tensor {} {}.", header().name(), name, what));
  };
  if (found->type->name != "F32" || found->shape != std::vector<int64_t>{size}) {
    fail_tensor(
        fmt::format("is no list of {} F32 numbers, one for each pair of elements of a head "
                    "that is rotated",
                    size));
  }
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    const auto place = static_cast<size_t>(i) * sizeof(float);
    const auto value = static_cast<double>(load_little_endian<float>(found->data, place));
    if (!(value >= kTiny && value <= kMaxFactor)) {
      fail_tensor(fmt::format("holds {:g} at index {}; expected a number from {:g} to {:g}", value,
                              i, kTiny, kMaxFactor));
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace quire::loader_internal
