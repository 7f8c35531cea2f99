// A whole decode step in one kernel, of Qwen3-0.6B's and 8B's sizes: all layers have weights and
// caches of their own. With bfloat16 weights, with float8, scaled by output and by block, and with
// integers in groups of 128.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "base/ceil_div.h"
#include "bench.h"
#include "ops/cuda/decoder_step_kernels.h"
#include "ops/group_tiles.h"

namespace quire::bench {
namespace {

constexpr DType kDType = DType::kBFloat16;
constexpr int kHeadDim = 128;
constexpr int kBlockSize = 16;
constexpr int64_t kVocab = 1024;
constexpr int64_t kMaxContext = 3584;
constexpr int64_t kMaxPosition = 4096;

struct Sizes {
  const char* name;
  int num_layers;
  int64_t hidden;
  int64_t inner;
  int num_heads;
  int num_kv_heads;
  ops::WeightFormat weights = DType::kBFloat16;

  int64_t qkv() const { return int64_t{num_heads + 2 * num_kv_heads} * kHeadDim; }
  int64_t attention() const { return int64_t{num_heads} * kHeadDim; }
  int64_t num_scales(int64_t n, int64_t k) const {
    if (weights.is_dense() || weights.is_integer()) return 0;
    if (weights.group_size == 0) return n;
    return ceil_div(n, weights.group_size) * ceil_div(k, weights.group_size);
  }
  double weight_bytes() const {
    if (weights.is_integer()) {
      const auto bytes = [&](int64_t n, int64_t k) {
        return static_cast<double>(ops::group_tiles(weights, n, k).bytes());
      };
      return num_layers * (bytes(qkv(), hidden) + bytes(hidden, attention()) +
                           bytes(2 * inner, hidden) + bytes(hidden, inner));
    }
    const int64_t elements = hidden * (qkv() + attention() + 3 * inner);
    const int64_t scales = num_scales(qkv(), hidden) + num_scales(hidden, attention()) +
                           num_scales(2 * inner, hidden) + num_scales(hidden, inner);
    return num_layers *
           (static_cast<double>(size_of(weights.dtype)) * static_cast<double>(elements) +
            4.0 * static_cast<double>(scales));
  }
  double context_bytes(int64_t tokens) const {
    return 4.0 * num_layers * static_cast<double>(tokens * num_kv_heads * kHeadDim);
  }
};

constexpr ops::WeightFormat kFloat8 = ops::WeightFormat::float8();
constexpr ops::WeightFormat kFloat8Blocks = ops::WeightFormat::float8(ops::kFloat8Block);
constexpr ops::WeightFormat kInt4 = ops::WeightFormat::integers(4, 128);
constexpr ops::WeightFormat kInt4Offsets = ops::WeightFormat::integers(4, 128, true);
constexpr ops::WeightFormat kInt8 = ops::WeightFormat::integers(8, 128);
constexpr Sizes kSizes[] = {{"0.6B", 28, 1024, 3072, 16, 8},
                            {"0.6B-fp8", 28, 1024, 3072, 16, 8, kFloat8},
                            {"0.6B-fp8-blocks", 28, 1024, 3072, 16, 8, kFloat8Blocks},
                            {"8B", 36, 4096, 12288, 32, 8},
                            {"8B-fp8", 36, 4096, 12288, 32, 8, kFloat8},
                            {"8B-fp8-blocks", 36, 4096, 12288, 32, 8, kFloat8Blocks},
                            {"0.6B-int4", 28, 1024, 3072, 16, 8, kInt4},
                            {"8B-int4", 36, 4096, 12288, 32, 8, kInt4},
                            {"8B-int4-offsets", 36, 4096, 12288, 32, 8, kInt4Offsets},
                            {"8B-int8", 36, 4096, 12288, 32, 8, kInt8}};

// Integers of any bits, scales such that outputs stay near 1.
DeviceBuffer random_tiles(const ops::GroupTiles& layout) {
  std::vector<uint64_t> words(static_cast<size_t>(layout.bytes()) / sizeof(uint64_t));
  std::mt19937_64 random(11);
  std::generate(words.begin(), words.end(), std::ref(random));
  auto* const bytes = reinterpret_cast<std::byte*>(words.data());
  const std::vector<float> header(
      static_cast<size_t>(layout.block_bytes() - layout.data_bytes()) / sizeof(float), 0.002f);
  for (int64_t at = 0; at < layout.bytes(); at += layout.block_bytes()) {
    std::memcpy(bytes + at + layout.data_bytes(), header.data(), header.size() * sizeof(float));
  }
  return DeviceBuffer::of(words);
}

class StepModel {
 public:
  explicit StepModel(const Sizes& sizes) : sizes_(sizes) {
    std::vector<ops::CudaDecoderLayer> layers;
    const int64_t blocks = ops::kMaxDecoderStepRows * (kMaxContext / kBlockSize);
    const int64_t cache = blocks * kBlockSize * sizes.num_kv_heads * kHeadDim;
    for (int i = 0; i < sizes.num_layers; ++i) {
      const float* norm = floats(sizes.hidden);
      const Matrix qkv = matrix(sizes.qkv(), sizes.hidden);
      const Matrix o = matrix(sizes.hidden, sizes.attention());
      const Matrix gate_up = matrix(2 * sizes.inner, sizes.hidden);
      const Matrix down = matrix(sizes.hidden, sizes.inner);
      layers.push_back({.input_norm = norm,
                        .qkv_weight = qkv.data,
                        .qkv_scales = qkv.scales,
                        .qkv_bias = nullptr,
                        .q_norm = floats(kHeadDim),
                        .k_norm = floats(kHeadDim),
                        .o_weight = o.data,
                        .o_scales = o.scales,
                        .o_bias = nullptr,
                        .post_norm = norm,
                        .gate_up_weight = gate_up.data,
                        .gate_up_scales = gate_up.scales,
                        .gate_up_bias = nullptr,
                        .down_weight = down.data,
                        .down_scales = down.scales,
                        .down_bias = nullptr,
                        .keys = elements(kDType, cache, 1),
                        .values = elements(kDType, cache, 1),
                        .sliding_window = 0});
    }
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    args_ = {.dtype = kDType,
             .weight_format = sizes.weights,
             .rows = 1,
             .hidden = sizes.hidden,
             .inner = sizes.inner,
             .num_heads = sizes.num_heads,
             .num_kv_heads = sizes.num_kv_heads,
             .head_dim = kHeadDim,
             .eps = 1e-6f,
             .scale = 0.088f,
             .cos_sin = floats(kMaxPosition * kHeadDim),
             .rotary_dim = kHeadDim,
             .layers = upload(layers),
             .num_layers = sizes.num_layers,
             .final_norm = floats(sizes.hidden),
             .embedding = elements(kDType, kVocab * sizes.hidden, 1),
             .token_ids = upload(std::vector<int32_t>(ops::kMaxDecoderStepRows, 3)),
             .positions = nullptr,
             .slot_mapping = nullptr,
             .query_start = nullptr,
             .num_seqs = 1,
             .context_lens = nullptr,
             .block_tables = upload(table),
             .table_width = kMaxContext / kBlockSize,
             .cache = {kDType, nullptr, nullptr, kBlockSize, sizes.num_kv_heads, kHeadDim},
             .out = elements(kDType, ops::kMaxDecoderStepRows * sizes.hidden, 1),
             .scratch = nullptr};
    buffers_.push_back(
        DeviceBuffer::of_bytes(static_cast<size_t>(ops::cuda::decoder_step_scratch_bytes(args_))));
    args_.scratch = buffers_.back().data();
    table_ = table;
  }

  void time(CudaBench& bench, int64_t rows, int64_t context) {
    const std::string name = std::string("decoder_step/") + sizes_.name + "/" +
                             std::to_string(rows) + "x" + std::to_string(context);
    if (!bench.wants(name)) return;
    const auto count = static_cast<size_t>(rows);
    std::vector<int64_t> slots;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * args_.table_width + (context - 1) / kBlockSize;
      slots.push_back(table_[static_cast<size_t>(at)] * kBlockSize + (context - 1) % kBlockSize);
    }
    ops::CudaDecoderStep args = args_;
    args.rows = args.num_seqs = rows;
    args.positions = upload(std::vector<int32_t>(count, static_cast<int32_t>(context - 1)));
    args.context_lens = upload(std::vector<int32_t>(count, static_cast<int32_t>(context)));
    args.slot_mapping = upload(slots);
    const double bytes =
        sizes_.weight_bytes() + static_cast<double>(rows) * sizes_.context_bytes(context);
    bench.time(name, {.bytes = bytes}, 1,
               [&](int) { ops::cuda::decoder_step(bench.stream(), args); });
  }

 private:
  template <typename T>
  T* upload(const std::vector<T>& values) {
    buffers_.push_back(DeviceBuffer::of(values));
    return buffers_.back().as<T>();
  }
  const float* floats(int64_t count, float scale = 1.0f) {
    buffers_.emplace_back(DType::kFloat32, count, scale);
    return buffers_.back().as<float>();
  }
  void* elements(DType dtype, int64_t count, float scale) {
    buffers_.emplace_back(dtype, count, scale);
    return buffers_.back().data();
  }
  struct Matrix {
    const void* data;
    const float* scales;
  };
  Matrix matrix(int64_t n, int64_t k) {
    if (sizes_.weights.is_integer()) {
      buffers_.push_back(random_tiles(ops::group_tiles(sizes_.weights, n, k)));
      return {buffers_.back().data(), nullptr};
    }
    const int64_t scales = sizes_.num_scales(n, k);
    return {elements(sizes_.weights.dtype, n * k, 0.02f),
            scales > 0 ? floats(scales, 0.02f) : nullptr};
  }

  Sizes sizes_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<int32_t> table_;
  ops::CudaDecoderStep args_ = {};
};

void run(CudaBench& bench) {
  for (const Sizes& sizes : kSizes) {
    const std::string prefix = std::string("decoder_step/") + sizes.name;
    const auto names_it = [&](int64_t rows, int64_t context) {
      return bench.wants(prefix + "/" + std::to_string(rows) + "x" + std::to_string(context));
    };
    std::vector<std::pair<int64_t, int64_t>> cases;
    for (const int64_t context : {128, 640, 3584}) {
      for (const int64_t rows : {1, 2, 4, 8}) {
        if (names_it(rows, context)) cases.emplace_back(rows, context);
      }
    }
    if (cases.empty()) continue;
    StepModel model(sizes);
    for (const auto& [rows, context] : cases) model.time(bench, rows, context);
  }
}

const BenchGroup group("decoder_step", run);

}  // namespace
}  // namespace quire::bench
