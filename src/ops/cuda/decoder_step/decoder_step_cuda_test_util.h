#pragma once
// A decoder for the tests of the decoder step: a plain one on the host, in float, and what the
// kernels need of it on the device.
//
// Thread safety: one thread.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/decoder_step_kernels.h"
#include "ops/group_tiles.h"

namespace quire::ops::decoder_step_test {

struct ModelShape {
  DType dtype = DType::kBFloat16;
  int hidden = 256;
  int inner = 512;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 128;
  int rotary_dim = 128;
  int num_layers = 3;
  bool qk_norm = true;
  bool biases = false;
  int64_t sliding_window = 0;  // of every second layer
  int block_size = 16;
  std::optional<WeightFormat> format = {};  // of the layers' matrices; none: dense, of dtype
  int most_code = 0x7e;                     // of float8: the greatest magnitude, which is 448

  int qkv_width() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  int attention_width() const { return num_heads * head_dim; }
  WeightFormat weights() const { return format.value_or(dtype); }
};

using Values = std::vector<float>;

inline constexpr int kVocab = 50;
inline constexpr float kEps = 1e-6f;

// A weight [n, k]: its numbers, and of float8 and integers what they are made of.
struct Matrix {
  Values values;
  std::vector<uint8_t> codes;
  Values scales;
};

struct Layer {
  Values input_norm, qkv_bias, q_norm, k_norm, o_bias, post_norm, gate_up_bias, down_bias, keys,
      values;
  Matrix qkv, o, gate_up, down;
};

inline size_t to_size(int64_t value) {
  return static_cast<size_t>(value);
}

// out = x * weight^T + bias.
inline Values multiply(const Values& x, const Values& weight, const Values& bias) {
  Values out(weight.size() / x.size());
  for (size_t n = 0; n < out.size(); ++n) {
    const float* row = &weight[n * x.size()];
    const float sum = std::inner_product(x.begin(), x.end(), row, 0.0f);
    out[n] = sum + (bias.empty() ? 0.0f : bias[n]);
  }
  return out;
}

inline Values multiply(const Values& x, const Matrix& weight, const Values& bias) {
  return multiply(x, weight.values, bias);
}

inline Values normed(const Values& x, const Values& weight) {
  double squares = 0;
  for (const float value : x) squares += static_cast<double>(value) * value;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  Values out(x.size());
  for (size_t i = 0; i < x.size(); ++i) out[i] = static_cast<float>(x[i] * factor * weight[i]);
  return out;
}

inline void add(Values& to, const Values& what) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += what[i];
}

// A model with random weights, its paged cache with random contents, and the step's inputs: on the
// host and on the device.
class Model {
 public:
  // `query_lens`: rows of each sequence; none: one each. A context includes them.
  Model(const ModelShape& shape, const std::vector<int>& context_lens, std::mt19937& random,
        const std::vector<int>& query_lens = {})
      : shape_(shape), context_lens_(context_lens), random_(random) {
    for (int seq = 0; seq < num_seqs(); ++seq) {
      const int count = query_lens.empty() ? 1 : query_lens[to_size(seq)];
      for (int i = 0; i < count; ++i) {
        rows_.push_back({.seq = seq,
                         .context = context_lens[to_size(seq)] - (count - 1 - i),
                         .cached = context_lens[to_size(seq)] - count});
      }
      query_start_.push_back(rows());
    }
    make_tables();
    embedding_ = values(kVocab * shape.hidden, 1.0f);
    final_norm_ = around_one(shape.hidden);
    for (int i = 0; i < shape.num_layers; ++i) layers_.push_back(make_layer());
  }

  int num_seqs() const { return static_cast<int>(context_lens_.size()); }
  int rows() const { return static_cast<int>(rows_.size()); }
  // Tokens that the row sees, and those of them that are in the cache before.
  int context(int row) const { return rows_[to_size(row)].context; }
  int cached(int row) const { return rows_[to_size(row)].cached; }
  int64_t slot(int row, int position) const {
    const int block = position / shape_.block_size;
    const int seq = rows_[to_size(row)].seq;
    return int64_t{tables_[to_size(seq * table_width_ + block)]} * shape_.block_size +
           position % shape_.block_size;
  }
  // First element of a slot in a layer's keys or values.
  size_t place(int64_t slot, int kv_head) const {
    return to_size(((slot / shape_.block_size * shape_.num_kv_heads + kv_head) * shape_.block_size +
                    slot % shape_.block_size) *
                   shape_.head_dim);
  }

  // What two ranks have of a row's sums over both, in a model of one layer.
  struct RankSums {
    Values after_attention;
    Values after_mlp;
  };

  // What a row's adapter makes of the outputs of a layer's matrix, which the bias is in.
  using Adapt = std::function<void(int row, int layer, DecoderMatrix matrix, const Values& in,
                                   const Values& bias, Values& out)>;
  void set_adapters(Adapt adapt) { adapt_ = std::move(adapt); }

  // The step on the host, for a row; writes the caches. Of a sequence's rows the first one first.
  // With `others`, what another rank adds, and in `own` what this one does.
  Values run(int row, const RankSums* others = nullptr, RankSums* own = nullptr) {
    return normed(run_layers(row, embedded(row), others, own), final_norm_);
  }
  Values embedded(int row) const {
    const auto* from = &embedding_[to_size(token_ids_[to_size(row)] * shape_.hidden)];
    return {from, from + shape_.hidden};
  }
  // The residual before the final norm.
  Values run_layers(int row, Values residual, const RankSums* others = nullptr,
                    RankSums* own = nullptr) {
    inputs_.clear();
    for (int i = 0; i < shape_.num_layers; ++i) {
      Layer& layer = layers_[to_size(i)];
      inputs_.push_back(residual);
      const auto product = [&](DecoderMatrix which, const Values& in, const Matrix& weight,
                               const Values& bias) {
        Values out = multiply(in, weight, bias);
        if (adapt_) adapt_(row, i, which, in, bias, out);
        return out;
      };
      const Values qkv =
          product(kQkvMatrix, normed(residual, layer.input_norm), layer.qkv, layer.qkv_bias);
      const Values attended = product(kOutputMatrix, attend(row, i, qkv), layer.o, layer.o_bias);
      add(residual, attended);
      if (others != nullptr) add(residual, others->after_attention);
      Values gates = product(kGateUpMatrix, normed(residual, layer.post_norm), layer.gate_up,
                             layer.gate_up_bias);
      for (int j = 0; j < shape_.inner; ++j) {
        const float gate = gates[to_size(j)];
        gates[to_size(j)] = gate / (1 + std::exp(-gate)) * gates[to_size(shape_.inner + j)];
      }
      gates.resize(to_size(shape_.inner));
      const Values projected = product(kDownMatrix, gates, layer.down, layer.down_bias);
      add(residual, projected);
      if (others != nullptr) add(residual, others->after_mlp);
      if (own != nullptr) *own = {attended, projected};
    }
    return residual;
  }

  // What entered the layers of the row that ran last.
  const std::vector<Values>& inputs() const { return inputs_; }
  int64_t window(int layer) const { return layer % 2 == 1 ? shape_.sliding_window : 0; }
  const ModelShape& shape() const { return shape_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<int>& context_lens() const { return context_lens_; }
  const std::vector<int32_t>& query_start() const { return query_start_; }
  const Values& embedding() const { return embedding_; }
  const Values& final_norm() const { return final_norm_; }
  const Values& cos_sin() const { return cos_sin_; }
  const std::vector<int32_t>& token_ids() const { return token_ids_; }
  const std::vector<int32_t>& tables() const { return tables_; }
  int table_width() const { return table_width_; }

 private:
  Values values(int64_t count, float scale) {
    return rounded(shape_.dtype, random_values(to_size(count), random_, scale));
  }
  Values around_one(int count) {
    Values weights = random_values(to_size(count), random_, 0.2f);
    for (float& weight : weights) weight += 1;
    return weights;
  }
  Matrix matrix(int64_t n, int64_t k) {
    const float scale = 1 / std::sqrt(static_cast<float>(k));
    const WeightFormat format = shape_.weights();
    if (format.kind == WeightKind::kFloat8) return float8_matrix(n, k, scale);
    if (format.is_integer()) return integer_matrix(format, n, k, scale);
    return {values(n * k, scale), {}, {}};
  }

  // Some scales are 16 times as large as others.
  Matrix integer_matrix(const WeightFormat& format, int64_t n, int64_t k, float scale) {
    const bool is_int4 = format.kind == WeightKind::kInt4;
    const int low = format.is_unsigned ? 0 : is_int4 ? -8 : -128;
    std::uniform_int_distribution<int> integer(low, low + (is_int4 ? 15 : 255));
    const int64_t per_row = format.group_size == 0 ? 1 : (k - 1) / format.group_size + 1;
    std::vector<int8_t> integers;
    Values scales, offsets;
    for (int64_t i = 0; i < n * k; ++i) integers.push_back(static_cast<int8_t>(integer(random_)));
    for (int64_t i = 0; i < n * per_row; ++i) {
      const float factor = std::exp2(static_cast<float>(random_() % 401) / 100 - 2.5f);
      scales.push_back(scale / (is_int4 ? 5.0f : 74.0f) * factor);
      offsets.push_back(-scales.back() * static_cast<float>(integer(random_)) / 2);
    }
    const GroupTiles layout = group_tiles(format, n, k);
    std::vector<std::byte> tiles(to_size(layout.bytes()));
    pack_tile_rows(layout, 0,
                   {.rows = n,
                    .data = integers.data(),
                    .scales = scales.data(),
                    .offsets = format.has_offsets ? offsets.data() : nullptr},
                   tiles.data());
    Matrix matrix;
    matrix.values.resize(to_size(n * k));
    for (int64_t row = 0; row < n; ++row) {
      unpack_tile_row(layout, row, tiles.data(), &matrix.values[to_size(row * k)]);
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(tiles.data());
    matrix.codes.assign(bytes, bytes + tiles.size());
    return matrix;
  }

  // Random codes to draw from: each magnitude up to the greatest, and twice as many by a normal
  // distribution. Also the mean magnitude, by squares.
  struct Codes {
    std::vector<uint8_t> all;
    float mean = 0;
  };
  Codes make_codes() {
    Codes codes;
    for (int code = 0; code <= shape_.most_code; ++code) {
      codes.all.push_back(static_cast<uint8_t>(code));
      codes.all.push_back(static_cast<uint8_t>(code | 0x80));
    }
    const float most = float_of_e4m3(static_cast<uint8_t>(shape_.most_code));
    for (const float value : random_values(2 * codes.all.size(), random_, most / 4)) {
      codes.all.push_back(e4m3_of_float(std::clamp(value, -most, most)));
    }
    double squares = 0;
    for (const uint8_t code : codes.all) squares += std::pow(float_of_e4m3(code), 2);
    codes.mean = static_cast<float>(std::sqrt(squares / static_cast<double>(codes.all.size())));
    return codes;
  }
  // Neighbouring scales differ by up to 16 times: one in another's place is seen.
  Matrix float8_matrix(int64_t n, int64_t k, float scale) {
    const Codes codes = make_codes();
    Values magnitudes(256);
    for (int i = 0; i < 256; ++i) magnitudes[to_size(i)] = float_of_e4m3(static_cast<uint8_t>(i));
    const bool in_blocks = shape_.weights().group_size != 0;
    const int64_t per_row = in_blocks ? (k + kFloat8Block - 1) / kFloat8Block : 1;
    const int64_t rows = in_blocks ? (n + kFloat8Block - 1) / kFloat8Block : n;
    Matrix matrix;
    for (int64_t i = 0; i < rows * per_row; ++i) {
      const float factor = std::exp2(static_cast<float>(random_() % 401) / 100 - 2.5f);
      matrix.scales.push_back(scale / codes.mean * factor);
    }
    matrix.values.reserve(to_size(n * k));
    matrix.codes.reserve(to_size(n * k));
    for (int64_t row = 0; row < n; ++row) {
      const float* scales =
          &matrix.scales[to_size((in_blocks ? row / kFloat8Block : row) * per_row)];
      for (int64_t column = 0; column < k; ++column) {
        const uint8_t code = codes.all[random_() % codes.all.size()];
        matrix.codes.push_back(code);
        matrix.values.push_back(magnitudes[code] * scales[in_blocks ? column / kFloat8Block : 0]);
      }
    }
    return matrix;
  }
  Values bias(int count) {
    return shape_.biases ? random_values(to_size(count), random_, 0.5f) : Values();
  }

  Layer make_layer() {
    const ModelShape& s = shape_;
    Layer layer;
    layer.input_norm = around_one(s.hidden);
    layer.qkv = matrix(s.qkv_width(), s.hidden);
    layer.qkv_bias = bias(s.qkv_width());
    if (s.qk_norm) {
      layer.q_norm = around_one(s.head_dim);
      layer.k_norm = around_one(s.head_dim);
    }
    layer.o = matrix(s.hidden, s.attention_width());
    layer.o_bias = bias(s.hidden);
    layer.post_norm = around_one(s.hidden);
    layer.gate_up = matrix(2 * s.inner, s.hidden);
    layer.gate_up_bias = bias(2 * s.inner);
    layer.down = matrix(s.hidden, s.inner);
    layer.down_bias = bias(s.hidden);
    const int64_t cache = int64_t{num_blocks_} * s.num_kv_heads * s.block_size * s.head_dim;
    layer.keys = written(values(cache, 1.0f));
    layer.values = written(values(cache, 1.0f));
    return layer;
  }

  // NaN where no row has written yet: beyond the contexts, where the step's own tokens go, and in
  // blocks that are nobody's.
  Values written(const Values& cache) const {
    Values result(cache.size(), std::numeric_limits<float>::quiet_NaN());
    for (int row = 0; row < rows(); ++row) {
      for (int position = 0; position < cached(row); ++position) {
        for (int head = 0; head < shape_.num_kv_heads; ++head) {
          const auto at = static_cast<int64_t>(place(slot(row, position), head));
          std::copy_n(cache.begin() + at, shape_.head_dim, result.begin() + at);
        }
      }
    }
    return result;
  }

  void make_tables() {
    const int longest = *std::max_element(context_lens_.begin(), context_lens_.end());
    table_width_ = std::max(1, (longest + shape_.block_size - 1) / shape_.block_size);
    num_blocks_ = num_seqs() * table_width_ + 1;
    tables_.resize(to_size(num_seqs() * table_width_));
    std::iota(tables_.begin(), tables_.end(), 1);
    std::shuffle(tables_.begin(), tables_.end(), random_);
    for (int seq = 0; seq < num_seqs(); ++seq) {
      // Beyond a sequence's last block there is none; a padding row keeps one.
      const int context = context_lens_[to_size(seq)];
      const int blocks = std::max(1, (context + shape_.block_size - 1) / shape_.block_size);
      std::fill(tables_.begin() + seq * table_width_ + blocks,
                tables_.begin() + (seq + 1) * table_width_, -1);
    }
    for (int row = 0; row < rows(); ++row) {
      token_ids_.push_back(static_cast<int32_t>(random_() % kVocab));
    }
    const int half = shape_.rotary_dim / 2;
    for (int position = 0; position < std::max(1, longest); ++position) {
      const auto angle = [&](int i) {
        return position * std::pow(1e4f, static_cast<float>(-i) / static_cast<float>(half));
      };
      for (int i = 0; i < half; ++i) cos_sin_.push_back(std::cos(angle(i)));
      for (int i = 0; i < half; ++i) cos_sin_.push_back(std::sin(angle(i)));
    }
  }

  // A head of qkv, normed and rotated.
  Values prepared(const Values& qkv, int head, const Values& norm, int position) const {
    const auto first = qkv.begin() + head * shape_.head_dim;
    Values out(first, first + shape_.head_dim);
    if (!norm.empty()) out = normed(out, norm);
    const int half = shape_.rotary_dim / 2;
    const float* cosines = cos_sin_.data() + position * shape_.rotary_dim;
    for (int i = 0; i < half; ++i) {
      float& a = out[to_size(i)];
      float& b = out[to_size(i + half)];
      const float rotated = a * cosines[i] - b * cosines[half + i];
      b = b * cosines[i] + a * cosines[half + i];
      a = rotated;
    }
    return out;
  }

  Values attend(int row, int index, const Values& qkv) {
    Layer& layer = layers_[to_size(index)];
    const ModelShape& s = shape_;
    const int end = context(row);
    const int position = end - 1;
    for (int head = 0; head < s.num_kv_heads; ++head) {
      const Values key = prepared(qkv, s.num_heads + head, layer.k_norm, position);
      const auto value = qkv.begin() + (s.num_heads + s.num_kv_heads + head) * s.head_dim;
      const size_t at = place(slot(row, position), head);
      const Values stored = rounded(s.dtype, key);
      const Values stored_value = rounded(s.dtype, Values(value, value + s.head_dim));
      std::copy(stored.begin(), stored.end(), layer.keys.begin() + static_cast<int64_t>(at));
      std::copy(stored_value.begin(), stored_value.end(),
                layer.values.begin() + static_cast<int64_t>(at));
    }
    const int64_t seen = window(index);
    const int begin = seen > 0 ? std::max(0, end - static_cast<int>(seen)) : 0;
    Values out;
    for (int head = 0; head < s.num_heads; ++head) {
      const Values query = prepared(qkv, head, layer.q_norm, position);
      const int kv_head = head / (s.num_heads / s.num_kv_heads);
      Values scores;
      for (int token = begin; token < end; ++token) {
        const float* key = &layer.keys[place(slot(row, token), kv_head)];
        scores.push_back(std::inner_product(query.begin(), query.end(), key, 0.0f) * scale());
      }
      const float greatest = *std::max_element(scores.begin(), scores.end());
      float total = 0;
      Values sum(to_size(s.head_dim));
      for (int token = begin; token < end; ++token) {
        const float weight = std::exp(scores[to_size(token - begin)] - greatest);
        total += weight;
        const float* value = &layer.values[place(slot(row, token), kv_head)];
        for (int i = 0; i < s.head_dim; ++i) sum[to_size(i)] += weight * value[i];
      }
      for (const float value : sum) out.push_back(value / total);
    }
    return out;
  }

 public:
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_dim)); }

 private:
  struct Row {
    int seq;
    int context;
    int cached;
  };

  ModelShape shape_;
  std::vector<int> context_lens_;  // of sequences
  std::vector<Row> rows_;
  std::vector<int32_t> query_start_{0};
  std::vector<Values> inputs_;
  Adapt adapt_;
  std::mt19937& random_;
  int table_width_ = 0;
  int num_blocks_ = 0;
  std::vector<int32_t> tables_;
  std::vector<int32_t> token_ids_;
  Values cos_sin_, embedding_, final_norm_;
  std::vector<Layer> layers_;
};

// What a model needs on the device.
class DeviceModel {
 public:
  // `has_adapters`: with the scratch for steps with adapters.
  explicit DeviceModel(const Model& model, bool has_adapters = false) {
    const ModelShape& shape = model.shape();
    std::vector<CudaDecoderLayer> layers;
    for (int i = 0; i < shape.num_layers; ++i) {
      const Layer& layer = model.layers()[to_size(i)];
      keys_.push_back(elements(shape.dtype, layer.keys));
      values_.push_back(elements(shape.dtype, layer.values));
      layers.push_back({.input_norm = floats(layer.input_norm),
                        .qkv_weight = weight(shape, layer.qkv),
                        .qkv_scales = floats(layer.qkv.scales),
                        .qkv_bias = floats(layer.qkv_bias),
                        .q_norm = floats(layer.q_norm),
                        .k_norm = floats(layer.k_norm),
                        .o_weight = weight(shape, layer.o),
                        .o_scales = floats(layer.o.scales),
                        .o_bias = floats(layer.o_bias),
                        .post_norm = floats(layer.post_norm),
                        .gate_up_weight = weight(shape, layer.gate_up),
                        .gate_up_scales = floats(layer.gate_up.scales),
                        .gate_up_bias = floats(layer.gate_up_bias),
                        .down_weight = weight(shape, layer.down),
                        .down_scales = floats(layer.down.scales),
                        .down_bias = floats(layer.down_bias),
                        .keys = keys_.back()->data(),
                        .values = values_.back()->data(),
                        .sliding_window = model.window(i)});
    }
    layers_.emplace(layers);
    token_ids_.emplace(model.token_ids());
    context_lens_.emplace(
        std::vector<int32_t>(model.context_lens().begin(), model.context_lens().end()));
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    for (int row = 0; row < model.rows(); ++row) {
      const int position = std::max(0, model.context(row) - 1);
      positions.push_back(position);
      slots.push_back(model.context(row) > 0 ? model.slot(row, position) : -1);
    }
    positions_.emplace(positions);
    slots_.emplace(slots);
    tables_.emplace(model.tables());
    out_.emplace(shape.dtype, to_size(int64_t{model.rows()} * shape.hidden));
    const bool has_chunks = model.rows() != model.num_seqs();
    if (has_chunks) query_start_.emplace(model.query_start());
    args_ = {.dtype = shape.dtype,
             .weight_format = shape.weights(),
             .rows = model.rows(),
             .hidden = shape.hidden,
             .inner = shape.inner,
             .num_heads = shape.num_heads,
             .num_kv_heads = shape.num_kv_heads,
             .head_dim = shape.head_dim,
             .eps = kEps,
             .scale = model.scale(),
             .cos_sin = floats(model.cos_sin()),
             .rotary_dim = shape.rotary_dim,
             .layers = layers_->data(),
             .num_layers = shape.num_layers,
             .final_norm = floats(model.final_norm()),
             .embedding = elements(shape.dtype, model.embedding())->data(),
             .token_ids = token_ids_->data(),
             .positions = positions_->data(),
             .slot_mapping = slots_->data(),
             .query_start = has_chunks ? query_start_->data() : nullptr,
             .num_seqs = model.num_seqs(),
             .context_lens = context_lens_->data(),
             .block_tables = tables_->data(),
             .table_width = model.table_width(),
             .cache = {shape.dtype, nullptr, nullptr, shape.block_size, shape.num_kv_heads,
                       shape.head_dim},
             .out = out_->data(),
             .scratch = nullptr};
    CudaDecoderStep sizes = args_;
    sizes.lora.rows.max_items = has_adapters ? 1 : 0;
    scratch_.emplace(to_size(cuda::decoder_step_scratch_bytes(sizes)));
    scratch_->zero();
    args_.scratch = scratch_->data();
  }

  const CudaDecoderStep& args() const { return args_; }
  DeviceElements& out() { return *out_; }
  DeviceElements& keys(int layer) { return *keys_[to_size(layer)]; }
  DeviceElements& values(int layer) { return *values_[to_size(layer)]; }

 private:
  DeviceElements* elements(DType dtype, const Values& values) {
    elements_.push_back(std::make_unique<DeviceElements>(dtype, values));
    return elements_.back().get();
  }
  const void* weight(const ModelShape& shape, const Matrix& matrix) {
    if (matrix.codes.empty()) return elements(shape.dtype, matrix.values)->data();
    codes_.push_back(std::make_unique<DeviceArray<uint8_t>>(matrix.codes));
    return codes_.back()->data();
  }
  const float* floats(const Values& values) {
    if (values.empty()) return nullptr;
    floats_.push_back(std::make_unique<DeviceArray<float>>(values));
    return floats_.back()->data();
  }

  std::vector<std::unique_ptr<DeviceElements>> elements_;
  std::vector<std::unique_ptr<DeviceArray<uint8_t>>> codes_;
  std::vector<std::unique_ptr<DeviceArray<float>>> floats_;
  std::vector<DeviceElements*> keys_;
  std::vector<DeviceElements*> values_;
  std::optional<DeviceArray<CudaDecoderLayer>> layers_;
  std::optional<DeviceArray<int32_t>> token_ids_, positions_, query_start_, context_lens_, tables_;
  std::optional<DeviceArray<int64_t>> slots_;
  std::optional<DeviceElements> out_;
  std::optional<DeviceArray<std::byte>> scratch_;
  CudaDecoderStep args_ = {};
};

}  // namespace quire::ops::decoder_step_test
