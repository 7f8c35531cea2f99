#include "loader/weight_loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <cstring>
#include <functional>

#include <span>

#include "base/check.h"
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

const ParameterPart& part_of(const Target& target) {
  return target.parameter->parts()[target.part];
}

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
  const ParameterPart& part = part_of(*task.target);
  return task.rows.end == part.rows.size() &&
         task.target->first_row + part.shape.front() == task.target->shape.front();
}

void add_tasks(const Target& target, const CheckpointTensor* tensor, int64_t element_size,
               int64_t progress, std::vector<Task>& tasks) {
  const ParameterPart& part = part_of(target);
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

DType weight_dtype(const CheckpointTensor& tensor) {
  if (tensor.dtype == "F32") return DType::kFloat32;
  if (tensor.dtype == "BF16") return DType::kBFloat16;
  if (tensor.dtype == "F16") return DType::kFloat16;
  throw Error(fmt::format("{}: the tensor {} is {}; weights are loaded from F32, F16 or BF16.",
                          tensor.file, tensor.name, tensor.describe()));
}

void check_tensor(const CheckpointTensor& tensor, const Target& target) {
  const DType dtype = weight_dtype(tensor);
  const std::vector<int64_t>& expected = target.shape;
  if (tensor.shape != expected) {
    throw Error(fmt::format("{}: the tensor {} is {}; config.json makes its shape [{}].",
                            tensor.file, tensor.name, tensor.describe(),
                            fmt::join(expected, ", ")));
  }
  int64_t elements = 1;
  for (const int64_t dim : expected) elements *= dim;
  check(tensor.bytes == static_cast<size_t>(elements) * size_of(dtype),
        "the checkpoint's tensors were checked to have their shape's size");
}

// The row of the target's tensor that is the first one the rank takes.
int64_t first_row_of(const Target& target) {
  return target.first_row + part_of(target).rows.begin;
}

// Rows of a checkpoint tensor as a matrix of the columns that the rank takes.
Tensor source_rows(const CheckpointTensor& tensor, const Target& target, IndexRange rows) {
  const int64_t columns = target.shape.size() == 1 ? 1 : target.shape[1];
  const Tensor whole(const_cast<std::byte*>(tensor.data), weight_dtype(tensor),
                     {target.shape[0], columns});
  const int64_t first = first_row_of(target);
  const IndexRange taken = part_of(target).columns;
  return whole.rows(first + rows.begin, first + rows.end).columns(taken.begin, taken.end);
}

// Bytes of the tensor that are the target's part, what other ranks take included.
int64_t part_bytes(const CheckpointTensor& tensor, const Target& target) {
  const auto bytes = static_cast<int64_t>(tensor.bytes);
  return bytes / target.shape.front() * part_of(target).shape.front();
}

// The same values at an address that their type allows.
Tensor aligned_copy(const Tensor& source, std::vector<std::byte>& scratch) {
  const size_t row_bytes = static_cast<size_t>(source.dim(1)) * size_of(source.dtype());
  const size_t stride = static_cast<size_t>(source.row_stride()) * size_of(source.dtype());
  scratch.resize(row_bytes * static_cast<size_t>(source.dim(0)));
  const auto* from = static_cast<const std::byte*>(source.raw());
  for (size_t row = 0; row < static_cast<size_t>(source.dim(0)); ++row) {
    std::memcpy(scratch.data() + row * row_bytes, from + row * stride, row_bytes);
  }
  return Tensor(scratch.data(), source.dtype(), {source.dim(0), source.dim(1)});
}

bool is_aligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.raw()) % size_of(tensor.dtype()) == 0;
}

// What of a checkpoint goes where. Throws Error where the two don't match.
std::vector<std::pair<const CheckpointTensor*, Target>> match(const Checkpoint& checkpoint,
                                                              const ParameterMap& parameters) {
  std::vector<std::pair<const CheckpointTensor*, Target>> matched;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    std::vector<Target> targets = parameters.find(tensor.name);
    for (Target& target : targets) {
      check_tensor(tensor, target);
      matched.emplace_back(&tensor, std::move(target));
    }
    if (targets.empty() && !parameters.ignored(tensor.name)) {
      throw Error(
          fmt::format("{}: the tensor {} ({}) is no part of the model that config.json "
                      "describes.",
                      tensor.file, tensor.name, tensor.describe()));
    }
  }
  size_t missing = 0;
  std::string first;
  for (const Target& target : parameters.targets()) {
    if (target.first_row > 0 || checkpoint.find(target.name) != nullptr) continue;
    if (missing++ == 0) {
      first = fmt::format("{} of shape [{}]", target.name, fmt::join(target.shape, ", "));
    }
  }
  if (missing > 0) {
    throw Error(
        fmt::format("The checkpoint's files lack the tensor {}{}, which the model that "
                    "config.json describes needs.",
                    first, missing == 1 ? "" : fmt::format(" and {} more", missing - 1)));
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
  // Uniform in [-a, a) has standard deviation a / sqrt(3).
  constexpr float kStandardDeviation = 0.02f;
  constexpr float kSqrt3 = 1.7320508f;
  constexpr float kScale = kStandardDeviation * kSqrt3 / 32768.0f;
  for (size_t i = 0; i < out.size();) {
    const uint64_t element = first + i;
    uint64_t bits = random_bits(key, element / 4) >> (16 * (element % 4));
    const size_t end = std::min(out.size(), i + 4 - element % 4);
    for (; i < end; ++i, bits >>= 16) {
      out[i] = static_cast<float>(static_cast<int16_t>(bits & 0xffff)) * kScale;
    }
  }
}

void store_dummy(const Task& task, uint64_t seed, std::vector<float>& scratch) {
  const ParameterPart& part = part_of(*task.target);
  const int64_t columns = part.columns.size();
  scratch.assign(static_cast<size_t>(task.rows.size() * columns), 1.0f);
  if (task.target->parameter->dummy_init() == DummyInit::kUniform) {
    const uint64_t key = dummy_key(seed, task.target->name);
    const int64_t whole_columns = part.shape.size() == 1 ? 1 : part.shape[1];
    for (int64_t row = 0; row < task.rows.size(); ++row) {
      const int64_t first =
          (first_row_of(*task.target) + task.rows.begin + row) * whole_columns + part.columns.begin;
      fill_uniform(key, static_cast<uint64_t>(first),
                   std::span(scratch).subspan(static_cast<size_t>(row * columns),
                                              static_cast<size_t>(columns)));
    }
  }
  task.target->parameter->store(
      part.first_row + task.rows.begin,
      Tensor(scratch.data(), DType::kFloat32, {task.rows.size(), columns}));
}

}  // namespace

void load_weights(const Checkpoint& checkpoint, const ParameterMap& parameters, ThreadPool& pool,
                  const ProgressCallback& on_progress) {
  const auto matched = match(checkpoint, parameters);
  std::vector<Task> tasks;
  int64_t wanted = 0;
  for (const auto& [tensor, target] : matched) {
    const int64_t bytes = part_bytes(*tensor, target);
    add_tasks(target, tensor, static_cast<int64_t>(size_of(weight_dtype(*tensor))), bytes, tasks);
    if (part_of(target).rows.size() > 0) wanted += bytes;
  }
  const auto total = static_cast<int64_t>(checkpoint.total_bytes());
  int64_t done = total - wanted;
  std::vector<std::vector<std::byte>> scratch(static_cast<size_t>(pool.size()));
  run_tasks(
      tasks, pool,
      [&](const Task& task, int thread) {
        Tensor source = source_rows(*task.tensor, *task.target, task.rows);
        if (!is_aligned(source))
          source = aligned_copy(source, scratch[static_cast<size_t>(thread)]);
        task.target->parameter->store(part_of(*task.target).first_row + task.rows.begin, source);
      },
      [&](std::span<const Task> batch) {
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
    const ParameterPart& part = part_of(target);
    const auto bytes = static_cast<int64_t>(sizeof(float)) * part.rows.size() * part.columns.size();
    add_tasks(target, nullptr, sizeof(float), bytes, tasks);
    total += bytes;
  }
  int64_t done = 0;
  std::vector<std::vector<float>> scratch(static_cast<size_t>(pool.size()));
  run_tasks(
      tasks, pool,
      [&](const Task& task, int thread) {
        store_dummy(task, seed, scratch[static_cast<size_t>(thread)]);
      },
      [&](std::span<const Task> batch) {
        for (const Task& task : batch) done += task.progress;
        if (on_progress) on_progress("Making random weights", done, total);
      });
}

}  // namespace quire
