#include "loader/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "loader/integer_check.h"
#include "loader/scale_check.h"
#include "loader/tensor_rows.h"
#include "loader/unexpected_tensor.h"
#include "quire/error.h"

namespace quire {
namespace {

using Target = ParameterMap::Target;

// A task copies about this much, so that threads finish together; small enough to stay in the L2
// cache.
constexpr int64_t kTaskBytes = 1 << 20;
// Progress is reported, and pages given back, after about this much.
constexpr int64_t kBatchBytes = 64 << 20;
// Tasks start at a multiple of this many rows, so that two threads rarely write to one panel of a
// packed weight.
constexpr int64_t kTaskRows = 64;

// A range of rows of one checkpoint tensor, relative to the first row that the rank takes.
struct Task {
  const Target* target = nullptr;
  const CheckpointTensor* tensor = nullptr;  // none for dummy weights
  IndexRange rows;
  int64_t progress =
      0;  // bytes of the checkpoint (of the parameters, for dummy weights) done with it
};

// Whether no later task reads the task's tensor: its parts' tasks come in their order.
bool ends_tensor(const Task& task) {
  const Target& target = *task.target;
  const std::vector<int64_t>& part = target.share().shape;
  return task.rows.end == target.share().rows.size() &&
         target.first_row + part.front() == target.shape.front() &&
         (part.size() == 1 || target.first_column + part.back() == target.shape.back());
}

void add_tasks(const Target& target, const CheckpointTensor* tensor, int64_t element_size,
               int64_t progress, std::vector<Task>& tasks) {
  const ParameterPart& part = target.share();
  const int64_t num_rows = part.rows.size();
  const int64_t row_bytes = std::max<int64_t>(1, part.columns.size() * element_size);
  const int64_t step = std::max<int64_t>(1, kTaskBytes / row_bytes / kTaskRows) * kTaskRows;
  for (int64_t begin = 0; begin < num_rows; begin += step) {
    const int64_t end = std::min(num_rows, begin + step);
    const auto upto = [&](int64_t row) {
      return static_cast<int64_t>(static_cast<double>(progress) * static_cast<double>(row) /
                                  static_cast<double>(num_rows));
    };
    tasks.push_back({&target,
                     tensor,
                     {begin, end},
                     end == num_rows ? progress - upto(begin) : upto(end) - upto(begin)});
  }
}

// Runs body(task, thread) over all tasks in parallel, and after(batch) between batches on this
// thread.
void run_tasks(const std::vector<Task>& tasks, ThreadPool& pool,
               const std::function<void(const Task&, int)>& body,
               const std::function<void(std::span<const Task>)>& after) {
  for (size_t begin = 0; begin < tasks.size();) {
    size_t end = begin;
    for (int64_t bytes = 0; end < tasks.size() && bytes < kBatchBytes; ++end) {
      bytes += std::max<int64_t>(1, tasks[end].progress);
    }
    const std::span batch(tasks.data() + begin, end - begin);
    pool.parallel_for(static_cast<int64_t>(batch.size()),
                      [&](int64_t i, int thread) { body(batch[static_cast<size_t>(i)], thread); });
    after(batch);
    begin = end;
  }
}

// As files spell them.
constexpr std::pair<DType, std::string_view> kLoadedDTypes[] = {
    {DType::kFloat32, "F32"}, {DType::kFloat16, "F16"},       {DType::kBFloat16, "BF16"},
    {DType::kInt32, "I32"},   {DType::kInt64, "I64"},         {DType::kUInt8, "U8"},
    {DType::kInt8, "I8"},     {DType::kFloat8E4M3, "F8_E4M3"}};

// The one of the target's dtypes that the tensor has, or that it is dequantised to.
std::optional<DType> dtype_of(const CheckpointTensor& tensor, const Target& target) {
  const std::vector<DType>& dtypes = target.made_of().dtypes;
  std::string_view read_as = tensor.dtype;
  if (block_type_of(tensor) != nullptr) read_as = "F32";
  for (const auto& [dtype, name] : kLoadedDTypes) {
    const bool is_taken = std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
    if (name == read_as && is_taken) return dtype;
  }
  return std::nullopt;
}

// "F32, F16 or BF16".
std::string expected_dtypes(const Target& target) {
  std::vector<std::string_view> names;
  for (const DType wanted : target.made_of().dtypes) {
    for (const auto& [dtype, name] : kLoadedDTypes) {
      if (dtype == wanted) names.push_back(name);
    }
  }
  if (names.size() == 1) return std::string(names.front());
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

// What quantised weights are stored as, several of them packed into an I32 or a U8.
bool is_quantised(std::string_view dtype) {
  return dtype.starts_with("F8_") || dtype == "I8" || dtype == "U8" || dtype == "I32";
}

// Nothing where numbers that are not quantised have a type that no weight has, such as F64.
std::string_view reason_of_dtypes(const CheckpointTensor& tensor, const ParameterTensor& expected) {
  const bool is_dense = expected.dtypes.front() == DType::kFloat32;
  return is_dense && !is_quantised(tensor.dtype) ? std::string_view() : expected.reason;
}

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

// Whether the tensor is one number or a vector of `count`, extents of 1 aside.
bool is_one_or_each(const CheckpointTensor& tensor, int64_t count) {
  const bool is_vector = std::ranges::all_of(
      tensor.shape, [count](int64_t extent) { return extent == 1 || extent == count; });
  const int64_t found = count_of(tensor.shape);
  return is_vector && (found == 1 || found == count);
}

// Whether the tensor has the shape; a single number may also have no extents at all.
bool has_shape(const CheckpointTensor& tensor, const std::vector<int64_t>& expected) {
  const bool is_scalar = tensor.shape.empty() && expected == std::vector<int64_t>{1};
  return is_scalar || tensor.shape == expected;
}

void check_tensor(const CheckpointTensor& tensor, const Target& target,
                  std::string_view config_name) {
  const GgufType* block_type = target.share().block_type;
  if (block_type != nullptr && block_type != block_type_of(tensor)) {
    throw Error(fmt::format("{}: the tensor {} is {}; expected {}, as the file said before.",
                            tensor.file, tensor.name_in_file(), tensor.describe(),
                            block_type->name));
  }
  const std::optional<DType> dtype = dtype_of(tensor, target);
  if (!dtype) {
    throw Error(fmt::format("{}: the tensor {} is {}; expected {}{}.", tensor.file,
                            tensor.name_in_file(), tensor.describe(), expected_dtypes(target),
                            reason_of_dtypes(tensor, target.made_of())));
  }
  const std::vector<int64_t>& expected = target.shape;
  if (target.made_of().may_be_one) {
    if (is_one_or_each(tensor, expected.front())) return;
    throw Error(fmt::format("{}: the tensor {} is {}; expected one number, or {} by {}.",
                            tensor.file, tensor.name_in_file(), tensor.describe(), expected.front(),
                            config_name));
  }
  if (!has_shape(tensor, expected)) {
    throw Error(fmt::format("{}: the tensor {} is {}; {} makes its shape [{}].", tensor.file,
                            tensor.name_in_file(), tensor.describe(), config_name,
                            fmt::join(expected, ", ")));
  }
  if (block_type_of(tensor) != nullptr) return;
  check(tensor.bytes == static_cast<size_t>(count_of(expected)) * size_of(*dtype),
        "the checkpoint's tensors were checked to have their shape's size");
}

using Matches = std::vector<std::pair<const CheckpointTensor*, Target>>;

// The parts of a fused tensor are alike in what is asked of its scales.
std::vector<ScaleTensor> scales_of(const Matches& matches) {
  std::vector<ScaleTensor> scales;
  const CheckpointTensor* last = nullptr;
  for (const auto& [tensor, target] : matches) {
    if (std::exchange(last, tensor) == tensor || !target.made_of().is_scales) continue;
    const ParameterTensor& made_of = target.made_of();
    scales.push_back(
        {tensor, *dtype_of(*tensor, target), made_of.may_be_zero, made_of.is_positive});
  }
  return scales;
}

void check_all_integers(const Matches& matches) {
  for (const auto& [tensor, target] : matches) {
    const ParameterPart& part = target.share();
    check_integers(*tensor, *dtype_of(*tensor, target), part.integers, part.rows);
  }
}

// The first row and column of the target's tensor that the rank takes.
int64_t first_row_of(const Target& target) {
  return target.first_row + target.share().rows.begin;
}
int64_t first_column_of(const Target& target) {
  return target.first_column + target.share().columns.begin;
}

// Rows of a checkpoint tensor as a matrix of the columns that the rank takes.
Tensor source_rows(const CheckpointTensor& tensor, const Target& target, IndexRange rows,
                   std::vector<std::byte>& scratch) {
  const int64_t row = first_row_of(target);
  const int64_t column = first_column_of(target);
  const IndexRange taken_rows{row + rows.begin, row + rows.end};
  const IndexRange taken_columns{column, column + target.share().columns.size()};
  if (const GgufType* type = target.share().block_type) {
    return read_blocks(tensor, *type, taken_rows, taken_columns, scratch);
  }
  if (target.made_of().may_be_one) {
    CheckpointTensor vector = tensor;
    vector.shape = {count_of(tensor.shape)};
    return read_rows(vector, *dtype_of(tensor, target), {0, vector.shape.front()}, {0, 1}, scratch);
  }
  return read_rows(tensor, *dtype_of(tensor, target), taken_rows, taken_columns, scratch);
}

// Bytes of the tensor that are the target's part, what other ranks take included.
int64_t part_bytes(const CheckpointTensor& tensor, const Target& target) {
  if (target.made_of().may_be_one) return static_cast<int64_t>(tensor.bytes);
  const int64_t elements = count_of(target.share().shape);
  const GgufType* type = block_type_of(tensor);
  if (type != nullptr) return elements / type->block_values * type->block_bytes;
  return elements * static_cast<int64_t>(size_of(*dtype_of(tensor, target)));
}

bool is_zero(const CheckpointTensor& tensor) {
  return std::all_of(tensor.data, tensor.data + tensor.bytes,
                     [](std::byte byte) { return byte == std::byte{0}; });
}

bool is_passed_over(const CheckpointTensor& tensor, const ParameterMap& parameters) {
  return parameters.ignored(tensor.name) ||
         (parameters.ignored_if_zero(tensor.name) && is_zero(tensor));
}

// As messages begin with it: a model may have a draft model or head beside it. The folder, or the
// GGUF file.
std::string place_of(const Checkpoint& checkpoint) {
  if (checkpoint.tensors().empty()) return "";
  const CheckpointTensor& first = checkpoint.tensors().front();
  if (!first.stored_name.empty()) return first.file + ": ";
  const std::filesystem::path file(first.file);
  return file.has_parent_path() ? file.parent_path().string() + ": " : "";
}

// What of a checkpoint goes where. Throws Error where the two don't match.
Matches match(const Checkpoint& checkpoint, const ParameterMap& parameters) {
  Matches matched;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    std::vector<Target> targets = parameters.find(tensor.name);
    for (const Target& target : targets) check_tensor(tensor, target, checkpoint.config_name());
    for (Target& target : targets) matched.emplace_back(&tensor, std::move(target));
    if (targets.empty() && !is_passed_over(tensor, parameters)) {
      throw_unexpected(tensor, parameters, checkpoint.config_name());
    }
  }
  size_t missing = 0;
  std::string first;
  std::string last;  // the parts of a tensor follow each other
  for (const Target& target : parameters.targets()) {
    if (target.name == std::exchange(last, target.name)) continue;
    if (target.made_of().optional || checkpoint.find(target.name) != nullptr) continue;
    if (missing++ == 0) {
      first = fmt::format("{} of shape [{}]", checkpoint.name_in_files(target.name),
                          fmt::join(target.shape, ", "));
    }
  }
  if (missing > 0) {
    throw Error(fmt::format(
        "{}The checkpoint's files lack the tensor {}{}, which the model that {} "
        "describes needs.",
        place_of(checkpoint), first, missing == 1 ? "" : fmt::format(" and {} more", missing - 1),
        checkpoint.config_name()));
  }
  return matched;
}

// Random bits for element group `index` of a tensor (the finaliser of MurmurHash3).
uint64_t random_bits(uint64_t key, uint64_t index) {
  uint64_t x = key + index * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

uint64_t dummy_key(uint64_t seed, std::string_view name) {
  uint64_t key = random_bits(seed, 0);
  for (const char c : name) key = random_bits(key, static_cast<unsigned char>(c));
  return key;
}

// Elements [first, first + out.size()) of the tensor with this key. Four come from one random word.
void fill_uniform(uint64_t key, uint64_t first, std::span<float> out) {
  constexpr float kScale = kDummyBound / 32768.0f;
  for (size_t i = 0; i < out.size();) {
    const uint64_t element = first + i;
    uint64_t bits = random_bits(key, element / 4) >> (16 * (element % 4));
    const size_t end = std::min(out.size(), i + 4 - element % 4);
    for (; i < end; ++i, bits >>= 16) {
      out[i] = static_cast<float>(static_cast<int16_t>(bits & 0xffff)) * kScale;
    }
  }
}

struct DummyScratch {
  std::vector<float> floats;
  std::vector<std::byte> bytes;
};

// A row of random numbers of the tensor's first dtype to `out`: elements [first, first + columns)
// of the tensor with this key.
void fill_dummy_row(DType dtype, uint64_t key, uint64_t first, size_t columns, std::byte* out,
                    std::vector<float>& floats) {
  if (!is_floating(dtype)) {
    for (size_t i = 0; i < columns; ++i) {
      const uint64_t bits = random_bits(key, first + i);
      std::memcpy(out + i * size_of(dtype), &bits, size_of(dtype));
    }
    return;
  }
  floats.resize(columns);
  fill_uniform(key, first, floats);
  if (dtype == DType::kFloat32) {
    std::memcpy(out, floats.data(), columns * sizeof(float));
    return;
  }
  check(dtype == DType::kFloat8E4M3, "dummy weights are float32, float8 or integers");
  constexpr float kLargest = 448.0f;
  for (size_t i = 0; i < columns; ++i) {
    out[i] = static_cast<std::byte>(Float8E4M3(floats[i] / (kDummyBound / kLargest)).bits);
  }
}

// The rows of a task, of the tensor's first dtype.
Tensor dummy_rows(const Task& task, uint64_t seed, DummyScratch& scratch) {
  const Target& target = *task.target;
  const ParameterTensor& made_of = target.made_of();
  const int64_t columns = target.share().columns.size();
  const int64_t rows = task.rows.size();
  if (made_of.dummy_init == DummyInit::kWord) {
    const std::vector<uint32_t> words(static_cast<size_t>(rows * columns), made_of.dummy_word);
    scratch.bytes.resize(words.size() * sizeof(uint32_t));
    std::memcpy(scratch.bytes.data(), words.data(), scratch.bytes.size());
    return Tensor(scratch.bytes.data(), DType::kInt32, {rows, columns});
  }
  if (made_of.dummy_init != DummyInit::kUniform) {
    scratch.floats.assign(static_cast<size_t>(rows * columns),
                          made_of.dummy_init == DummyInit::kOnes ? 1.0f : made_of.dummy_value);
    return Tensor(scratch.floats.data(), DType::kFloat32, {rows, columns});
  }
  const DType dtype = made_of.dtypes.front();
  const size_t row_bytes = static_cast<size_t>(columns) * size_of(dtype);
  scratch.bytes.resize(static_cast<size_t>(rows) * row_bytes);
  const uint64_t key = dummy_key(seed, target.name);
  const int64_t whole_columns = target.shape.size() == 1 ? 1 : target.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first =
        (first_row_of(target) + task.rows.begin + row) * whole_columns + first_column_of(target);
    fill_dummy_row(dtype, key, static_cast<uint64_t>(first), static_cast<size_t>(columns),
                   scratch.bytes.data() + static_cast<size_t>(row) * row_bytes, scratch.floats);
  }
  return Tensor(scratch.bytes.data(), dtype, {rows, columns});
}

// Whether the rows are read where the file is mapped.
bool is_mapped(const Tensor& source, const CheckpointTensor& tensor) {
  const auto* const begin = static_cast<const std::byte*>(source.raw());
  return begin >= tensor.data && begin < tensor.data + tensor.bytes;
}

void store(const Task& task, const Tensor& source) {
  const Target& target = *task.target;
  target.parameter->store({.tensor = target.tensor,
                           .first_row = target.share().first_row + task.rows.begin,
                           .first_column = target.share().first_column,
                           .source = source,
                           .is_kept = task.tensor != nullptr && is_mapped(source, *task.tensor)});
}

// A task of a checkpoint.
void store_named(const Task& task, const Tensor& source) {
  try {
    store(task, source);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: the tensor {}: {}", task.tensor->file, task.tensor->name_in_file(),
                            error.what()));
  }
}

// Finishes each parameter when its last task is done.
class Finisher {
 public:
  Finisher(const ParameterMap& parameters, const std::vector<Task>& tasks, ThreadPool& pool)
      : pool_(pool) {
    for (const Target& target : parameters.targets()) left_.try_emplace(target.parameter, 0);
    for (const Task& task : tasks) ++left_[task.target->parameter];
    // Shards that are all padding.
    for (const auto& [parameter, left] : left_) {
      if (left == 0) parameter->finish(pool_);
    }
  }

  void done(std::span<const Task> batch) {
    for (const Task& task : batch) {
      Parameter* parameter = task.target->parameter;
      if (--left_.at(parameter) == 0) parameter->finish(pool_);
    }
  }

 private:
  ThreadPool& pool_;
  std::map<Parameter*, int64_t> left_;  // tasks
};

}  // namespace

void check_weights(const Checkpoint& checkpoint, const ParameterMap& parameters) {
  ThreadPool caller(1);
  const Matches matched = match(checkpoint, parameters);
  check_all_integers(matched);
  check_scales(scales_of(matched), caller);
}

void load_weights(const Checkpoint& checkpoint, const ParameterMap& parameters, ThreadPool& pool,
                  const ProgressCallback& on_progress) {
  const Matches matched = match(checkpoint, parameters);
  check_all_integers(matched);
  check_scales(scales_of(matched), pool);
  std::vector<Task> tasks;
  int64_t wanted = 0;
  const CheckpointTensor* last = nullptr;
  for (const auto& [tensor, target] : matched) {
    const bool is_common = target.made_of().fused_along == FusedAlong::kCommon;
    const bool is_counted = is_common && tensor == last;
    last = tensor;
    const int64_t bytes = is_counted ? 0 : part_bytes(*tensor, target);
    add_tasks(target, tensor, static_cast<int64_t>(size_of(*dtype_of(*tensor, target))), bytes,
              tasks);
    if (target.share().rows.size() > 0) wanted += bytes;
  }
  const auto total = static_cast<int64_t>(checkpoint.total_bytes());
  int64_t done = total - wanted;
  Finisher finisher(parameters, tasks, pool);
  std::vector<std::vector<std::byte>> scratch(static_cast<size_t>(pool.size()));
  run_tasks(
      tasks, pool,
      [&](const Task& task, int thread) {
        store_named(task, source_rows(*task.tensor, *task.target, task.rows,
                                      scratch[static_cast<size_t>(thread)]));
      },
      [&](std::span<const Task> batch) {
        finisher.done(batch);
        for (const Task& task : batch) {
          done += task.progress;
          if (ends_tensor(task)) checkpoint.release(*task.tensor);
        }
        if (on_progress) on_progress("Loading weights", done, total);
      });
}

void fill_dummy_weights(const ParameterMap& parameters, uint64_t seed, ThreadPool& pool,
                        const ProgressCallback& on_progress) {
  const std::vector<Target> targets = parameters.targets();
  std::vector<Task> tasks;
  int64_t total = 0;
  for (const Target& target : targets) {
    if (target.made_of().dummy_init == DummyInit::kAbsent) continue;
    const ParameterPart& part = target.share();
    const auto bytes = static_cast<int64_t>(sizeof(float)) * part.rows.size() * part.columns.size();
    add_tasks(target, nullptr, sizeof(float), bytes, tasks);
    total += bytes;
  }
  int64_t done = 0;
  Finisher finisher(parameters, tasks, pool);
  std::vector<DummyScratch> scratch(static_cast<size_t>(pool.size()));
  run_tasks(
      tasks, pool,
      [&](const Task& task, int thread) {
        store(task, dummy_rows(task, seed, scratch[static_cast<size_t>(thread)]));
      },
      [&](std::span<const Task> batch) {
        finisher.done(batch);
        for (const Task& task : batch) done += task.progress;
        if (on_progress) on_progress("Making random weights", done, total);
      });
}

}  // namespace quire
