#include "engine/merged_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/ceil_div.h"
#include "engine/lora_product.h"
#include "loader/checkpoint_writer.h"
#include "quantise/matrix_source.h"
#include "quantise/rounded_matrix.h"
#include "quire/error.h"

namespace quire {
namespace {

// Bytes that are written at a time, of a copied tensor or of merged float32 numbers.
constexpr size_t kWrittenBytes = size_t{16} << 20;
// Rows that a task merges.
constexpr int64_t kRowsOfMergeTask = 32;

constexpr std::string_view kHead = "lm_head";
constexpr std::string_view kEmbedding = "model.embed_tokens";

class MergePlanner {
 public:
  MergePlanner(const LoraAdapter& adapter, const LoraBase& base) : adapter_(adapter), base_(base) {}

  MergePlan plan() {
    for (const CheckpointTensor& tensor : base_.tensors) add(tensor);
    for (const LoraModule& module : adapter_.modules()) check_bias(module);
    return std::move(plan_);
  }

 private:
  void add(const CheckpointTensor& tensor) {
    const std::string_view name = tensor.name;
    const size_t dot = std::min(name.rfind('.'), name.size());
    const std::string_view module = name.substr(0, dot);
    // If the head is tied, transformers ignores a head that the checkpoint has all the same.
    if (base_.has_tied_head && module == kHead) return;
    const std::string_view leaf = name.substr(dot);
    const LoraModule* lora = adapter_.find(module);
    const bool is_bias = leaf == ".bias";
    const bool is_adapted =
        lora != nullptr && (leaf == ".weight" || (is_bias && lora->b_bias != nullptr));
    plan_.tensors.push_back({.name = tensor.name,
                             .base = &tensor,
                             .source = source_of(tensor.name, tensor),
                             .module = is_adapted ? lora : nullptr,
                             .is_bias = is_bias});
    if (base_.has_tied_head && module == kEmbedding) add_head(tensor);
  }

  const CheckpointTensor* source_of(const std::string& name, const CheckpointTensor& base) const {
    const auto found = adapter_.replaced().find(name);
    return found == adapter_.replaced().end() ? &base : found->second;
  }

  // Adds a tied output layer if it differs from the embedding now. PEFT ties it to the embedding
  // below the adapter: so not to its matrices, nor to a trained copy, but to one that was saved
  // beside its matrices.
  void add_head(const CheckpointTensor& embedding) {
    const MergedTensor merged = plan_.tensors.back();
    const bool is_copy = adapter_.config().saves_module(kEmbedding);
    const CheckpointTensor& below = is_copy ? *merged.base : *merged.source;
    const MergedTensor head = {.name = std::string(kHead) + ".weight",
                               .base = &embedding,
                               .source = source_of(std::string(kHead) + ".weight", below),
                               .module = adapter_.find(kHead)};
    if (head.source == merged.source && head.module == nullptr && merged.module == nullptr) return;
    plan_.tensors.push_back(head);
    plan_.untied = true;
  }

  void check_bias(const LoraModule& module) const {
    if (module.b_bias == nullptr || base_.find(module.name + ".bias") != nullptr) return;
    throw Error(fmt::format("{} is a bias, but {} of {} has none that it could be merged into.",
                            adapter_.at(*module.b_bias), module.name, base_.name));
  }

  const LoraAdapter& adapter_;
  const LoraBase& base_;
  MergePlan plan_;
};

int64_t columns_of(const CheckpointTensor& tensor) {
  return tensor.shape.size() == 2 ? tensor.shape[1] : 1;
}

// The numbers of one merged tensor, some rows at a time.
class MergedRows {
 public:
  MergedRows(const MergedTensor& tensor, const EndableLoops& loops)
      : tensor_(tensor), loops_(loops), columns_(columns_of(*tensor.base)) {
    if (tensor.module == nullptr) return;
    if (tensor.is_bias) {
      added_.resize(static_cast<size_t>(rows()));
      read_floats(*tensor.module->b_bias, {0, rows()}, added_.data());
      return;
    }
    product_.emplace(*tensor.module);
    if (is_scaled_by_column()) measure_columns();
  }

  int64_t rows() const { return tensor_.base->shape.front(); }
  int64_t columns() const { return columns_; }
  int64_t rows_at_a_time() const {
    return std::max<int64_t>(
        1, static_cast<int64_t>(kWrittenBytes / sizeof(float)) / std::max<int64_t>(1, columns_));
  }

  std::vector<float> read(IndexRange rows) const {
    std::vector<float> values = summed(rows);
    if (!product_ || product_->magnitudes().empty()) return values;
    for_each_task(rows, [&](IndexRange part) {
      for (int64_t row = part.begin; row < part.end; ++row) {
        float* numbers = values.data() + (row - rows.begin) * columns_;
        is_scaled_by_column() ? scale_columns(numbers) : scale_row(row, numbers);
      }
    });
    return values;
  }

 private:
  bool is_scaled_by_column() const {
    return product_->is_embedding() && !product_->magnitudes().empty();
  }

  // The base's rows, with the adapter's product added.
  std::vector<float> summed(IndexRange rows) const {
    std::vector<float> values(static_cast<size_t>(rows.size() * columns_));
    for_each_task(rows, [&](IndexRange part) {
      float* out = values.data() + (part.begin - rows.begin) * columns_;
      read_floats(*tensor_.source, part, out);
      if (product_) product_->add_to(part, out);
      if (!added_.empty()) add_bias(part, out);
    });
    return values;
  }

  template <typename Body>
  void for_each_task(IndexRange rows, const Body& body) const {
    loops_.parallel_for(ceil_div(rows.size(), kRowsOfMergeTask), [&](int64_t task) {
      const int64_t begin = rows.begin + task * kRowsOfMergeTask;
      body(IndexRange{begin, std::min(rows.end, begin + kRowsOfMergeTask)});
    });
  }

  void add_bias(IndexRange rows, float* out) const {
    const auto scale = static_cast<float>(tensor_.module->scale);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      out[row - rows.begin] += scale * added_[static_cast<size_t>(row)];
    }
  }

  void scale_row(int64_t row, float* numbers) const {
    double squares = 0;
    for (int64_t i = 0; i < columns_; ++i) squares += double{numbers[i]} * numbers[i];
    const double magnitude = product_->magnitudes()[static_cast<size_t>(row)];
    const auto factor = static_cast<float>(magnitude / std::sqrt(squares));
    for (int64_t i = 0; i < columns_; ++i) numbers[i] *= factor;
  }

  void scale_columns(float* numbers) const {
    for (int64_t i = 0; i < columns_; ++i) numbers[i] *= column_factors_[static_cast<size_t>(i)];
  }

  // Norms of an embedding's columns need all rows, so it is read once for them.
  void measure_columns() {
    std::vector<double> squares(static_cast<size_t>(columns_));
    for (int64_t begin = 0; begin < rows(); begin += rows_at_a_time()) {
      const std::vector<float> values = summed({begin, std::min(rows(), begin + rows_at_a_time())});
      for (size_t i = 0; i < values.size(); ++i) {
        squares[i % squares.size()] += double{values[i]} * values[i];
      }
    }
    for (size_t i = 0; i < squares.size(); ++i) {
      column_factors_.push_back(
          static_cast<float>(product_->magnitudes()[i] / std::sqrt(squares[i])));
    }
  }

  const MergedTensor& tensor_;
  const EndableLoops& loops_;
  int64_t columns_;
  std::optional<LoraProduct> product_;
  std::vector<float> added_;  // to a bias, times the scale
  std::vector<float> column_factors_;
};

// Whether the type holds the number: float16 ends at 65,504.
bool is_held(DType dtype, float value) {
  switch (dtype) {
    case DType::kFloat16:
      return std::isfinite(static_cast<float>(Float16(value)));
    case DType::kBFloat16:
      return std::isfinite(static_cast<float>(BFloat16(value)));
    default:
      return std::isfinite(value);
  }
}

class MergeWriter {
 public:
  MergeWriter(const MergePlan& plan, const Checkpoint& base, const std::filesystem::path& folder,
              const EndableLoops& loops, const MergeProgress& progress)
      : plan_(plan), base_(base), loops_(loops), progress_(progress), writer_(folder, headers()) {}

  void run() {
    for (const MergedTensor& tensor : plan_.tensors) {
      tensor.is_changed() ? merge(tensor) : copy(tensor);
      base_.release(*tensor.base);
    }
    writer_.finish();
  }

 private:
  std::vector<WrittenTensor> headers() const {
    std::vector<WrittenTensor> headers;
    for (const MergedTensor& tensor : plan_.tensors) {
      headers.push_back({tensor.name, tensor.base->dtype, tensor.base->shape, tensor.base->bytes});
    }
    return headers;
  }

  void copy(const MergedTensor& tensor) {
    const std::span bytes(tensor.base->data, tensor.base->bytes);
    for (size_t begin = 0; begin < bytes.size(); begin += kWrittenBytes) {
      write(bytes.subspan(begin, std::min(kWrittenBytes, bytes.size() - begin)));
    }
  }

  void merge(const MergedTensor& tensor) {
    const DType dtype = dtype_of_tensor(*tensor.base);
    const MergedRows merged(tensor, loops_);
    for (int64_t begin = 0; begin < merged.rows(); begin += merged.rows_at_a_time()) {
      const std::vector<float> values =
          merged.read({begin, std::min(merged.rows(), begin + merged.rows_at_a_time())});
      check_held(tensor, dtype, values);
      write(narrow_floats(dtype, values));
    }
  }

  static void check_held(const MergedTensor& tensor, DType dtype,
                         const std::vector<float>& values) {
    const auto wrong =
        std::ranges::find_if_not(values, [dtype](float value) { return is_held(dtype, value); });
    if (wrong == values.end()) return;
    throw Error(
        fmt::format("{}: merged it would hold {}, which {} does not; the base and the "
                    "adapter do not fit together.",
                    tensor.name, *wrong, name_of(dtype)));
  }

  void write(std::span<const std::byte> bytes) {
    writer_.write(bytes);
    progress_(bytes.size());
    loops_.check_point();
  }

  const MergePlan& plan_;
  const Checkpoint& base_;
  const EndableLoops& loops_;
  const MergeProgress& progress_;
  CheckpointWriter writer_;
};

}  // namespace

int64_t MergePlan::num_changed() const {
  return std::ranges::count(tensors, true, &MergedTensor::is_changed);
}

size_t MergePlan::bytes() const {
  size_t bytes = 0;
  for (const MergedTensor& tensor : tensors) bytes += tensor.base->bytes;
  return bytes;
}

MergePlan plan_merge(const LoraAdapter& adapter, const LoraBase& base) {
  return MergePlanner(adapter, base).plan();
}

void write_merged(const MergePlan& plan, const Checkpoint& base,
                  const std::filesystem::path& folder, const EndableLoops& loops,
                  const MergeProgress& progress) {
  MergeWriter(plan, base, folder, loops, progress).run();
}

}  // namespace quire
