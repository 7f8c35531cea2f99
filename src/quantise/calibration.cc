#include "quantise/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "layers/parameters.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "ops/linear.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr int kCacheBlock = 16;
// Rows of a Gram matrix that are computed at a time.
constexpr int64_t kGramRows = 256;

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

// Adds up X^T X of what each matrix is given.
class Calibration::GramObserver final : public LinearObserver {
 public:
  explicit GramObserver(ThreadPool& pool) : stream_(pool) {}

  // As a product of X^T with itself, by the kernels of the model's own products.
  void observe(const ops::Weight& weight, const Tensor& in) override {
    const int64_t k = in.dim(1);
    std::vector<float>& gram = grams_[&weight];
    gram.resize(static_cast<size_t>(k * k));
    std::vector<float> transposed(static_cast<size_t>(in.num_elements()));
    for (int64_t t = 0; t < in.dim(0); ++t) {
      const float* row = in.row<float>(t);
      for (int64_t j = 0; j < k; ++j) transposed[static_cast<size_t>(j * in.dim(0) + t)] = row[j];
    }
    const Tensor columns = matrix_of(transposed, in.dim(0));
    ops::Weight packed(DType::kFloat32, k, in.dim(0));
    packed.pack_rows(0, columns);
    std::vector<float> products(static_cast<size_t>(kGramRows * k));
    for (int64_t first = 0; first < k; first += kGramRows) {
      const int64_t count = std::min(kGramRows, k - first);
      const Tensor out = matrix_of(products, k).rows(0, count);
      ops::linear(stream_, columns.rows(first, first + count), packed, Tensor(), out);
      float* sums = gram.data() + first * k;
      for (int64_t i = 0; i < count * k; ++i) sums[i] += products[static_cast<size_t>(i)];
    }
  }

  std::vector<float> take(const ops::Weight& weight) { return std::move(grams_.at(&weight)); }

 private:
  Stream stream_;
  std::map<const ops::Weight*, std::vector<float>> grams_;
};

Calibration::Calibration(const Checkpoint& checkpoint, const ModelConfig& config,
                         const RoundingTarget& target, Windows windows, ThreadPool& pool)
    : checkpoint_(checkpoint),
      config_(config),
      target_(target),
      windows_(std::move(windows)),
      pool_(pool),
      stream_(pool),
      comm_(make_single_communicator()),
      hidden_(windows_.size()),
      residual_(windows_.size()) {
  for (const auto& window : windows_) longest_ = std::max(longest_, std::ssize(window));
  check(longest_ > 0, "a calibration has a text");
}

Calibration::~Calibration() = default;

bool Calibration::begin_layer(int64_t layer, const GoesOn& goes_on) {
  make_layer(layer);
  grams_ = std::make_unique<GramObserver>(pool_);
  factors_.clear();
  return run_windows(grams_.get(), goes_on);
}

RoundedMatrix Calibration::round(const std::string& module, const std::vector<float>& values) {
  const InputFactor& factor = factor_of(module);
  return round_with_gptq(target_, factor, values, std::ssize(values) / factor.k(), pool_);
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

bool Calibration::end_layer(const GoesOn& goes_on) {
  const bool is_last = layer_ + 1 == config_.num_hidden_layers;
  const bool went_on = is_last || run_windows(nullptr, goes_on);
  factors_.clear();
  grams_.reset();
  parameters_ = ParameterMap();
  model_.reset();
  return went_on;
}

void Calibration::make_layer(int64_t layer) {
  layer_ = layer;
  ModelOptions options;
  options.config = config_;
  options.config.quantization.reset();
  options.max_model_len = longest_;
  options.first_layer = layer;
  options.last_layer = layer + 1;
  arena_ = std::make_unique<Arena>(Buffer(CountedModel(options).activation_bytes(longest_, 1)));
  model_ = create_model(options);
  parameters_ = model_->parameters();
  load_parameters();
  const KvCacheShape shape = model_->kv_cache_shape();
  KvCacheView cache = {.dtype = DType::kFloat32,
                       .num_blocks = ceil_div(longest_, int64_t{kCacheBlock}),
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
      const MatrixSource source(checkpoint_, config_.quantization,
                                std::string(module_of(target.name)));
      values = source.read(pool_);
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
  const MatrixSource source(checkpoint_, config_.quantization, std::string(module_of(target.name)));
  std::set<int32_t> ids;
  for (const auto& window : windows_) ids.insert(window.begin(), window.end());
  std::vector<float> row(static_cast<size_t>(source.k()));
  for (const int32_t id : ids) {
    source.read_rows_to({id, id + 1}, row.data());
    store(target, id, matrix_of(row, source.k()));
  }
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
  return factors_.emplace(&weight, InputFactor(std::move(gram), weight.k(), pool_)).first->second;
}

bool Calibration::run_windows(LinearObserver* observer, const GoesOn& goes_on) {
  for (size_t window = 0; window < windows_.size(); ++window) {
    if (!goes_on()) return false;
    run_window(window, observer);
  }
  return true;
}

void Calibration::run_window(size_t window, LinearObserver* observer) {
  std::vector<int32_t>& ids = windows_[window];
  const int64_t count = std::ssize(ids);
  std::vector<int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int64_t> slots(positions.begin(), positions.end());
  std::vector<int32_t> blocks(static_cast<size_t>(ceil_div(count, int64_t{kCacheBlock})));
  std::iota(blocks.begin(), blocks.end(), 0);
  int32_t query_start[] = {0, static_cast<int32_t>(count)};
  auto context_len = static_cast<int32_t>(count);
  int32_t last_row = context_len - 1;
  const ForwardBatch batch{
      .num_tokens = count,
      .num_seqs = 1,
      .max_query_len = count,
      .max_context_len = context_len,
      .token_ids = Tensor(ids.data(), DType::kInt32, {count}),
      .positions = Tensor(positions.data(), DType::kInt32, {count}),
      .slot_mapping = Tensor(slots.data(), DType::kInt64, {count}),
      .query_start = Tensor(query_start, DType::kInt32, {2}),
      .context_lens = Tensor(&context_len, DType::kInt32, {1}),
      .block_tables = Tensor(blocks.data(), DType::kInt32, {1, std::ssize(blocks)}),
      .logits_rows = Tensor(&last_row, DType::kInt32, {1}),
      .decode_items = Tensor(),
      .num_decode_items = Tensor()};
  Arena::Scope scope(*arena_);
  ForwardContext context{stream_, DType::kFloat32, *arena_, *comm_, batch};
  context.observer = observer;
  // The layer works in place, and what it is given is needed again after the first pass.
  std::vector<float> hidden = hidden_[window];
  std::vector<float> residual = residual_[window];
  std::optional<IntermediateTensors> previous;
  if (layer_ > 0) {
    previous = {matrix_of(hidden, config_.hidden_size), matrix_of(residual, config_.hidden_size)};
  }
  const IntermediateTensors state = model_->forward(context, previous);
  if (observer != nullptr) return;
  copy_rows_of(state.hidden, hidden_[window]);
  copy_rows_of(state.residual, residual_[window]);
}

}  // namespace quire
