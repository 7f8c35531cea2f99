#include "layers/stored_weight.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/ceil_div.h"
#include "loader/gguf_blocks.h"
#include "ops/linear.h"

namespace quire {
namespace {

// Rows that lie side by side in a CPU's memory, which share the reading of packed words and stay in
// the L2 cache.
constexpr int64_t kPackedRows = 64;
// Of words that are packed as they are stored a task has up to so many times as many, as those that
// follow are fetched while some are packed, but leaves each thread a few tasks.
constexpr int64_t kMostPanels = 4;
constexpr int64_t kTasksOfAThread = 4;

bool is_float8_by_outputs(const WeightScheme& scheme) {
  return scheme.layout == WeightLayout::kFloat8 && scheme.group_inputs == 0;
}

// The largest groups of a format that cut neither the schemes' groups nor begin within one; -1:
// there are none. 0 where each output has one scale.
int64_t common_group_size(const std::vector<StoredModule>& modules,
                          const std::vector<ParameterPart>& parts) {
  const auto is_whole = [](const StoredModule& module) { return module.scheme.group_inputs == 0; };
  if (std::all_of(modules.begin(), modules.end(), is_whole)) return 0;
  for (const int64_t size : {128, 64, 32, 16}) {
    const bool divides_groups = std::all_of(
        modules.begin(), modules.end(),
        [size](const StoredModule& module) { return module.scheme.group_inputs % size == 0; });
    const bool divides_parts =
        std::all_of(parts.begin(), parts.end(),
                    [size](const ParameterPart& part) { return part.columns.begin % size == 0; });
    if (divides_groups && divides_parts) return size;
  }
  return -1;
}

bool is_unsigned(const WeightScheme& scheme) {
  return scheme.block_type != nullptr && gguf_integers(*scheme.block_type)->is_unsigned;
}

// Of 4 bits, of the same range. int8 holds all of them.
bool are_int4(const std::vector<StoredModule>& modules) {
  return std::all_of(modules.begin(), modules.end(), [&](const StoredModule& module) {
    return module.scheme.bits == 4 && module.scheme.layout != WeightLayout::kInt8 &&
           is_unsigned(module.scheme) == is_unsigned(modules.front().scheme);
  });
}

// Whether scales are stored as int8 times a float32 of each block of inputs, as all modules have
// them and the rank's inputs begin with a block.
bool has_scale_factors(const std::vector<StoredModule>& modules,
                       const std::vector<ParameterPart>& parts) {
  static_assert(kGgufScaleBlock == ops::kScaleBlock);
  const auto has_factors = [](const StoredModule& module) {
    const GgufType* type = module.scheme.block_type;
    return type != nullptr && gguf_integers(*type)->factors != nullptr;
  };
  return std::all_of(modules.begin(), modules.end(), has_factors) &&
         std::all_of(parts.begin(), parts.end(), [](const ParameterPart& part) {
           return part.columns.begin % ops::kScaleBlock == 0;
         });
}

using PackRows = std::function<void(IndexRange rows)>;

void for_rows(int64_t num_rows, int64_t most_panels, ThreadPool& pool, const PackRows& pack) {
  const int64_t panels = num_rows / kPackedRows / (kTasksOfAThread * pool.size());
  const int64_t step = kPackedRows * std::clamp<int64_t>(panels, 1, most_panels);
  pool.parallel_for(ceil_div(num_rows, step), [&](int64_t task, int) {
    pack({task * step, std::min(num_rows, (task + 1) * step)});
  });
}

using InputOrder = std::vector<int32_t>;

void pack_dense(const StoredMatrix& stored, const InputOrder&, IndexRange rows, int64_t first_row,
                ops::Weight& weight) {
  std::vector<float> values(static_cast<size_t>(rows.size() * weight.k()));
  stored.dequantise(rows, values.data());
  weight.pack_rows(first_row + rows.begin,
                   Tensor(values.data(), DType::kFloat32, {rows.size(), weight.k()}));
}

void set_float8_scales(const StoredMatrix& stored, int64_t first_row, ops::Weight& weight) {
  const int64_t block = weight.format().group_size;
  std::vector<float> scales = block == 0 ? stored.output_scales() : stored.block_scales();
  const int64_t columns = block == 0 ? 1 : ceil_div(weight.k(), block);
  const int64_t rows = static_cast<int64_t>(scales.size()) / columns;
  weight.set_scales(block == 0 ? first_row : first_row / block,
                    Tensor(scales.data(), DType::kFloat32, {rows, columns}));
}

// Rows of numbers [rows, order.size()] with their inputs in this order.
std::vector<int8_t> ordered(const std::vector<int8_t>& numbers, const InputOrder& order) {
  std::vector<int8_t> result;
  result.reserve(numbers.size());
  for (const int8_t* row = numbers.data(); row != numbers.data() + numbers.size();
       row += order.size()) {
    for (const int32_t input : order) result.push_back(row[input]);
  }
  return result;
}

// For each group of the format the scheme's group that has its scale and zero point.
std::vector<int32_t> stored_groups_of(const StoredMatrix& stored, const InputOrder& order,
                                      const ops::Weight& weight) {
  const int64_t size = weight.format().group_size;
  const int64_t groups = size == 0 ? 1 : ceil_div(weight.k(), size);
  std::vector<int32_t> result;
  for (int64_t group = 0; group < groups; ++group) {
    const auto first_input = static_cast<size_t>(order[static_cast<size_t>(group * size)]);
    result.push_back(stored.group_of_input()[first_input]);
  }
  return result;
}

// Rows of scales and offsets of the format's groups, from those of the scheme's.
struct DecodedScales {
  std::vector<float> scales;
  std::vector<float> offsets;

  DecodedScales(const StoredMatrix& stored, const std::vector<int32_t>& groups, IndexRange rows) {
    const int64_t stored_groups = stored.num_groups();
    scales.resize(static_cast<size_t>(rows.size() * stored_groups));
    offsets.resize(scales.size());  // the zero points, first
    stored.decode_scales(rows, scales.data(), offsets.data());
    if (!are_in_order(groups, stored_groups)) take(groups, stored_groups);
    for (size_t i = 0; i < scales.size(); ++i) offsets[i] *= -scales[i];
  }

 private:
  static bool are_in_order(const std::vector<int32_t>& groups, int64_t count) {
    if (static_cast<int64_t>(groups.size()) != count) return false;
    for (int64_t i = 0; i < count; ++i) {
      if (groups[static_cast<size_t>(i)] != i) return false;
    }
    return true;
  }

  // Those of `groups` from rows of `stored_groups`.
  void take(const std::vector<int32_t>& groups, int64_t stored_groups) {
    const std::vector<float> stored_scales = std::exchange(scales, {});
    const std::vector<float> zeros = std::exchange(offsets, {});
    const auto row_size = static_cast<size_t>(stored_groups);
    for (size_t row = 0; row < stored_scales.size(); row += row_size) {
      for (const int32_t group : groups) {
        scales.push_back(stored_scales[row + static_cast<size_t>(group)]);
        offsets.push_back(zeros[row + static_cast<size_t>(group)]);
      }
    }
  }
};

// Whether the stored words are what the weight's memory is made of.
bool packs_words(const StoredMatrix& stored, const InputOrder& order, const ops::Weight& weight) {
  const ops::WeightFormat& format = weight.format();
  const int64_t size = format.group_size == 0 ? ops::kWholeRowGroup : format.group_size;
  const int bits = format.kind == ops::WeightKind::kInt4 ? 4 : 8;
  return weight.device() == DeviceType::kCpu && bits == stored.scheme().bits &&
         !format.is_unsigned && weight.k() % size == 0 &&
         std::is_sorted(order.begin(), order.end()) && stored.packed_rows(0).words != nullptr;
}

void pack_integers(const StoredMatrix& stored, const InputOrder& order, IndexRange rows,
                   int64_t first_row, ops::Weight& weight) {
  const DecodedScales decoded(stored, stored_groups_of(stored, order, weight), rows);
  ops::GroupedRows source = {
      .rows = rows.size(),
      .scales = decoded.scales.data(),
      .offsets = weight.format().has_offsets ? decoded.offsets.data() : nullptr};
  if (packs_words(stored, order, weight)) {
    const StoredMatrix::PackedRows packed = stored.packed_rows(rows.begin);
    source.words = packed.words;
    source.word_stride = packed.row_stride;
    return weight.pack_groups(first_row + rows.begin, source);
  }
  std::vector<int8_t> numbers(static_cast<size_t>(rows.size() * weight.k()));
  stored.decode_numbers(rows, numbers.data());
  if (!std::is_sorted(order.begin(), order.end())) numbers = ordered(numbers, order);
  source.data = numbers.data();
  weight.pack_groups(first_row + rows.begin, source);
}

// Whether groups can be put in order: a rank with some of the inputs has parts of many groups.
bool can_be_ordered(const std::vector<ParameterPart>& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const ParameterPart& part) {
    return part.columns.size() == part.shape[1];
  });
}

bool is_float8_in_blocks(const WeightScheme& scheme) {
  return scheme.layout == WeightLayout::kFloat8 && scheme.group_outputs == ops::kFloat8Block &&
         scheme.group_inputs == ops::kFloat8Block;
}

// Whether the blocks of the parts are blocks of the whole matrix, on every rank alike.
bool begin_with_blocks(const std::vector<ParameterPart>& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const ParameterPart& part) {
    const bool has_all_rows = part.rows.size() == part.shape.front();
    return part.first_row % ops::kFloat8Block == 0 && part.rows.begin % ops::kFloat8Block == 0 &&
           part.columns.begin % ops::kFloat8Block == 0 &&
           (has_all_rows || part.rows.size() % ops::kFloat8Block == 0);
  });
}

// Of integers with scales of float32, or dense where the modules are none that can be in groups.
ops::WeightFormat integer_format(const std::vector<StoredModule>& modules,
                                 const std::vector<ParameterPart>& parts) {
  const auto all = [&](const auto& rule) {
    return std::all_of(modules.begin(), modules.end(),
                       [&](const StoredModule& module) { return rule(module.scheme); });
  };
  const bool in_order = all([](const WeightScheme& scheme) { return !scheme.act_order; });
  const bool are_integers = all([](const WeightScheme& scheme) { return scheme.is_integer(); }) &&
                            (in_order || can_be_ordered(parts));
  const int64_t group_size = are_integers ? common_group_size(modules, parts) : -1;
  if (group_size == -1) return {};
  const bool has_offsets = !all([](const WeightScheme& scheme) { return scheme.symmetric; });
  const bool is_int4 = are_int4(modules);
  auto format = ops::WeightFormat::integers(is_int4 ? 4 : 8, group_size, has_offsets);
  format.is_unsigned = is_int4 && is_unsigned(modules.front().scheme);
  return format;
}

ops::WeightFormat stored_format_on_gpu(const Placement& place,
                                       const std::vector<StoredModule>& modules,
                                       const std::vector<ParameterPart>& parts) {
  int64_t n = 0;
  for (const ParameterPart& part : parts) n += part.rows.size();
  const ops::WeightFormat integers = integer_format(modules, parts);
  if (integers.is_integer()) {
    return multiplies_integers(place, integers, parts.front().columns.size())
               ? integers
               : ops::WeightFormat(place.dtype);
  }
  if (!multiplies_float8(place, n, parts.front().columns.size())) return place.dtype;
  const auto all = [&](const auto& rule) {
    return std::all_of(modules.begin(), modules.end(),
                       [&](const StoredModule& module) { return rule(module.scheme); });
  };
  if (all(is_float8_by_outputs)) return ops::WeightFormat::float8();
  if (all(is_float8_in_blocks) && begin_with_blocks(parts)) {
    return ops::WeightFormat::float8(ops::kFloat8Block);
  }
  return place.dtype;
}

}  // namespace

bool multiplies_float8(const Placement& place, int64_t n, int64_t k) {
  if (place.device.is_cpu()) return true;
  return place.may_be_quantised && place.device.compute_capability == ops::kQuantisedCapability &&
         ops::multiplies_float8_on_gpu(place.dtype, n, k);
}

bool multiplies_integers(const Placement& place, const ops::WeightFormat& format, int64_t k) {
  if (place.device.is_cpu()) return true;
  // Rows of activations lie k elements apart, and its copies begin at multiples of 16 bytes.
  return k % 8 == 0 && place.may_be_quantised &&
         place.device.compute_capability == ops::kQuantisedCapability &&
         ops::multiplies_integers_on_gpu(place.dtype, format);
}

ops::WeightFormat stored_format(const Placement& place, const std::vector<StoredModule>& modules,
                                const std::vector<ParameterPart>& parts) {
  if (!place.device.is_cpu()) return stored_format_on_gpu(place, modules, parts);
  const auto all = [&](const auto& rule) {
    return std::all_of(modules.begin(), modules.end(),
                       [&](const StoredModule& module) { return rule(module.scheme); });
  };
  if (all(is_float8_by_outputs)) return ops::WeightFormat::float8();
  ops::WeightFormat format = integer_format(modules, parts);
  if (!format.is_integer()) return place.dtype;
  if (has_scale_factors(modules, parts)) format.scale_dtype = DType::kInt8;
  format.rounds_activations = place.dtype != DType::kFloat32;
  return format;
}

std::vector<int32_t> input_order(const StoredMatrix& stored) {
  const std::vector<int32_t>& groups = stored.group_of_input();
  std::vector<int32_t> order(groups.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&groups](int32_t a, int32_t b) {
    return groups[static_cast<size_t>(a)] < groups[static_cast<size_t>(b)];
  });
  return order;
}

bool can_pack(const StoredMatrix& stored, const std::vector<int32_t>& order,
              const ops::WeightFormat& format) {
  if (!format.is_integer()) return true;
  const auto group_at = [&](size_t place) {
    return stored.group_of_input()[static_cast<size_t>(order[place])];
  };
  const auto size = format.group_size == 0 ? order.size() : static_cast<size_t>(format.group_size);
  for (size_t place = 0; place < order.size(); ++place) {
    if (group_at(place) != group_at(place / size * size)) return false;
  }
  return format.has_offsets || !stored.has_zero_points();
}

void pack_stored(const StoredMatrix& stored, const std::vector<int32_t>& order, int64_t first_row,
                 ops::Weight& weight, ThreadPool& pool) {
  if (weight.format().kind == ops::WeightKind::kFloat8) {
    return set_float8_scales(stored, first_row, weight);
  }
  const bool is_dense = weight.format().is_dense();
  const auto pack = is_dense ? pack_dense : pack_integers;
  const int64_t most_panels = !is_dense && packs_words(stored, order, weight) ? kMostPanels : 1;
  for_rows(stored.share().outputs.size(), most_panels, pool,
           [&](IndexRange rows) { pack(stored, order, rows, first_row, weight); });
}

}  // namespace quire
