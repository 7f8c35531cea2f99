#include "quantise/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "layers/parameters.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "ops/linear.h"
#include "quantise/matrix_source.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr int kCacheBlock = 16;
// Short windows run through a layer together, up to this many tokens.
constexpr int64_t kStepTokens = 2048;
// Columns of a layer's inputs that a task transposes and packs: whole panels of a weight.
constexpr int64_t kPackedColumns = 64;
// Rows of a Gram matrix that are computed at a time.
constexpr int64_t kGramRows = 256;

// One of so many outputs tells what rounding changes in all of them, for a 16th of the time that
// rounding takes.
constexpr int64_t kMeasuredOutputs = 32;

std::string_view module_of(std::string_view tensor) {
  return tensor.substr(0, tensor.rfind('.'));
}

Tensor matrix_of(std::vector<float>& values, int64_t columns) {
  return {values.data(), DType::kFloat32, {std::ssize(values) / columns, columns}};
}

void copy_rows_of(const Tensor& from, std::vector<float>& to) {
  to.resize(static_cast<size_t>(from.num_elements()));
  for (int64_t row = 0; row < from.dim(0); ++row) {
    std::copy_n(from.row<float>(row), from.dim(1), to.begin() + row * from.dim(1));
  }
}

}  // namespace

// For passes that collect nothing: they can be ended before each product.
class Calibration::EndObserver final : public LinearObserver {
 public:
  explicit EndObserver(const EndableLoops& loops) : loops_(loops) {}
  void observe(const ops::Weight&, const Tensor&) override { loops_.check_point(); }

 private:
  const EndableLoops& loops_;
};

// Adds up X^T X of what each matrix is given.
class Calibration::GramObserver final : public LinearObserver {
 public:
  explicit GramObserver(const EndableLoops& loops) : loops_(loops), stream_(loops.pool()) {}

  // As a product of X^T with itself, by the kernels of the model's own products.
  void observe(const ops::Weight& weight, const Tensor& in) override {
    const int64_t k = in.dim(1);
    std::vector<float>& gram = grams_[&weight];
    gram.resize(static_cast<size_t>(k * k));
    std::vector<float> transposed(static_cast<size_t>(in.num_elements()));
    const Tensor columns = matrix_of(transposed, in.dim(0));
    ops::Weight packed(DType::kFloat32, k, in.dim(0));
    loops_.parallel_for(ceil_div(k, kPackedColumns), [&](int64_t task) {
      const int64_t first = task * kPackedColumns;
      const int64_t end = std::min(k, first + kPackedColumns);
      transpose(in, first, end, columns);
      packed.pack_rows(first, columns.rows(first, end));
    });
    std::vector<float> products(static_cast<size_t>(kGramRows * k));
    for (int64_t first = 0; first < k; first += kGramRows) {
      loops_.check_point();
      const int64_t count = std::min(kGramRows, k - first);
      const Tensor out = matrix_of(products, k).rows(0, count);
      ops::linear(stream_, columns.rows(first, first + count), packed, Tensor(), out);
      loops_.parallel_for(count, [&](int64_t row) {
        const float* product = out.row<float>(row);
        float* sums = gram.data() + (first + row) * k;
        for (int64_t i = 0; i < k; ++i) sums[i] += product[i];
      });
    }
  }

  std::vector<float> take(const ops::Weight& weight) { return std::move(grams_.at(&weight)); }

 private:
  // Columns [first, end) of `in` as rows of `out`.
  static void transpose(const Tensor& in, int64_t first, int64_t end, const Tensor& out) {
    for (int64_t t = 0; t < in.dim(0); ++t) {
      const float* row = in.row<float>(t);
      for (int64_t j = first; j < end; ++j) out.row<float>(j)[t] = row[j];
    }
  }

  const EndableLoops& loops_;
  Stream stream_;
  std::map<const ops::Weight*, std::vector<float>> grams_;
};

Calibration::Calibration(const Checkpoint& checkpoint, const ModelConfig& config,
                         const RoundingTarget& target, const CalibrationWindows& windows,
                         bool notes_cache, const EndableLoops& loops)
    : checkpoint_(checkpoint),
      config_(config),
      target_(target),
      steps_(calibration_steps(windows, kStepTokens, kCacheBlock)),
      loops_(loops),
      stream_(loops.pool()),
      comm_(make_single_communicator()),
      notes_cache_(notes_cache) {
  for (const CalibrationStep& step : steps_) {
    most_tokens_ = std::max(most_tokens_, step.num_tokens());
    most_blocks_ = std::max(most_blocks_, step.num_blocks());
  }
  check(most_tokens_ > 0, "a calibration has a text");
}

Calibration::~Calibration() = default;

void Calibration::begin_layer(int64_t layer) {
  make_layer(layer);
  grams_ = std::make_unique<GramObserver>(loops_);
  factors_.clear();
  largest_ = {};
  if (target_.scheme.is_integer()) return run_text(*grams_, /*keeps_states=*/true);
  EndObserver observer(loops_);
  run_text(observer, /*keeps_states=*/true);
}

KvMagnitudes Calibration::kv_magnitudes() const {
  check(notes_cache_, "the calibration was told to note the cache");
  if (std::isfinite(largest_.keys) && std::isfinite(largest_.values)) return largest_;
  throw Error(fmt::format(
      "model.layers.{}.self_attn: with the calibration text its keys or values are not finite (NaN "
      "or infinity); quire check looks for the cause.",
      layer_));
}

RoundedMatrix Calibration::round(const std::string& module, const std::vector<float>& values) {
  const InputFactor& factor = factor_of(module);
  return round_with_gptq(target_, factor, values, std::ssize(values) / factor.k(), loops_);
}

double Calibration::squared_outputs(const std::string& module, const std::vector<float>& values) {
  return quire::squared_outputs(factor_of(module), values, kMeasuredOutputs, loops_);
}

void Calibration::replace(const std::string& module, const std::vector<float>& values) {
  for (const ParameterMap::Target& target : parameters_.find(module + ".weight")) {
    const ParameterPart& part = target.share();
    const int64_t columns = part.columns.size();
    const Tensor whole(const_cast<float*>(values.data()), DType::kFloat32,
                       {std::ssize(values) / columns, columns});
    store(target, 0, whole.rows(target.first_row, target.first_row + part.rows.size()));
  }
}

void Calibration::end_layer() {
  const bool is_last = layer_ + 1 == config_.num_hidden_layers;
  EndObserver observer(loops_);
  if (!is_last) run_text(observer, /*keeps_states=*/false);
  factors_.clear();
  grams_.reset();
  parameters_ = ParameterMap();
  model_.reset();
}

void Calibration::make_layer(int64_t layer) {
  layer_ = layer;
  ModelOptions options;
  options.config = config_;
  options.config.quantization.reset();
  options.max_model_len = most_tokens_;
  options.first_layer = layer;
  options.last_layer = layer + 1;
  arena_ = std::make_unique<Arena>(Buffer(CountedModel(options).activation_bytes(most_tokens_, 1)));
  model_ = create_model(options);
  parameters_ = model_->parameters();
  load_parameters();
  const KvCacheShape shape = model_->kv_cache_shape();
  KvCacheView cache = {.dtype = DType::kFloat32,
                       .num_blocks = most_blocks_,
                       .block_size = kCacheBlock,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_dim = shape.head_dim};
  const size_t bytes = static_cast<size_t>(cache.num_blocks) * cache.block_bytes();
  keys_ = Buffer(bytes);
  values_ = Buffer(bytes);
  cache.keys = keys_.data();
  cache.values = values_.data();
  caches_.assign(1, cache);
  model_->bind_cache(stream_, *comm_, caches_);
}

// What computes the logits stays zero: nothing asks for them.
void Calibration::load_parameters() {
  const std::string prefix = "model.layers." + std::to_string(layer_) + ".";
  for (const ParameterMap::Target& target : parameters_.targets()) {
    if (target.name.starts_with("model.embed_tokens.")) {
      if (layer_ == 0) load_embedding(target);
      continue;
    }
    if (!target.name.starts_with(prefix)) continue;
    const ParameterPart& part = target.share();
    std::vector<float> values;
    if (part.shape.size() == 2) {
      const MatrixSource source = source_of(target);
      values = source.read({0, source.n()}, loops_);
    } else {
      const CheckpointTensor* vector = checkpoint_.find(target.name);
      check(vector != nullptr, "the checkpoint was compared with the model");
      values.resize(static_cast<size_t>(target.shape.front()));
      read_floats(*vector, {0, target.shape.front()}, values.data());
    }
    store(target, 0,
          matrix_of(values, part.columns.size())
              .rows(target.first_row, target.first_row + part.rows.size()));
  }
}

// Rows of the tokens that the text has.
void Calibration::load_embedding(const ParameterMap::Target& target) {
  const MatrixSource source = source_of(target);
  std::set<int32_t> ids;
  for (const CalibrationStep& step : steps_) ids.insert(step.ids.begin(), step.ids.end());
  std::vector<float> row(static_cast<size_t>(source.k()));
  for (const int32_t id : ids) {
    source.read_rows_to({id, id + 1}, row.data());
    store(target, id, matrix_of(row, source.k()));
  }
}

MatrixSource Calibration::source_of(const ParameterMap::Target& target) const {
  return {checkpoint_,
          config_.quantization,
          std::string(module_of(target.name)),
          {target.shape[0], target.shape[1]}};
}

void Calibration::store(const ParameterMap::Target& target, int64_t first_row, const Tensor& rows) {
  target.parameter->store({.tensor = target.tensor,
                           .first_row = target.share().first_row + first_row,
                           .first_column = target.share().first_column,
                           .source = rows});
}

const ops::Weight& Calibration::weight_of(const std::string& module) const {
  const auto targets = parameters_.find(module + ".weight");
  check(!targets.empty(), "the module is one of the layer's");
  const auto* matrix = dynamic_cast<const MatrixParameter*>(targets.front().parameter);
  check(matrix != nullptr, "the module is a matrix");
  return matrix->weight();
}

const InputFactor& Calibration::factor_of(const std::string& module) {
  const ops::Weight& weight = weight_of(module);
  const auto found = factors_.find(&weight);
  if (found != factors_.end()) return found->second;
  std::vector<float> gram = grams_->take(weight);
  if (!std::ranges::all_of(gram, [](float sum) { return std::isfinite(sum); })) {
    throw Error(fmt::format(
        "{}: with the calibration text its inputs are not finite (NaN or infinity), or too large; "
        "quire check looks for the cause.",
        module));
  }
  return factors_.emplace(&weight, InputFactor(std::move(gram), weight.k(), loops_)).first->second;
}

void Calibration::run_text(LinearObserver& observer, bool keeps_states) {
  for (CalibrationStep& step : steps_) run_step(step, observer, keeps_states);
}

void Calibration::run_step(CalibrationStep& step, LinearObserver& observer, bool keeps_states) {
  const ForwardBatch batch = step.batch();
  Arena::Scope scope(*arena_);
  ForwardContext context{stream_, DType::kFloat32, *arena_, *comm_, batch};
  context.observer = &observer;
  // The layer works in place, and what it is given is needed again after the first pass.
  std::vector<float> hidden = step.hidden;
  std::vector<float> residual = step.residual;
  std::optional<IntermediateTensors> previous;
  if (layer_ > 0) {
    previous = {matrix_of(hidden, config_.hidden_size), matrix_of(residual, config_.hidden_size)};
  }
  const IntermediateTensors state = model_->forward(context, previous);
  if (keeps_states) {
    if (notes_cache_) note_cache();
    return;
  }
  copy_rows_of(state.hidden, step.hidden);
  copy_rows_of(state.residual, step.residual);
}

// What earlier steps have left in the cache counts again, and changes nothing.
void Calibration::note_cache() {
  const auto largest = [](const Buffer& buffer, float so_far) {
    const std::span numbers(reinterpret_cast<const float*>(buffer.data()),
                            buffer.size() / sizeof(float));
    for (const float number : numbers) {
      // A NaN is kept.
      if (!(std::abs(number) <= so_far)) so_far = std::abs(number);
      if (std::isnan(so_far)) break;
    }
    return so_far;
  };
  largest_ = {largest(keys_, largest_.keys), largest(values_, largest_.values)};
}

}  // namespace quire
