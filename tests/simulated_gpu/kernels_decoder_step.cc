// A whole decode step, one kernel after the other as the layers have them (models/decoder.cc).
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "ops/cuda/decoder_step_kernels.h"
#include "quire/error.h"
#include "simulated_gpu/elements.h"
#include "simulated_gpu/kernels.h"

namespace quire::simulated {
namespace {

// One step's activations between the kernels.
class DecoderStep {
 public:
  explicit DecoderStep(const ops::CudaDecoderStep& args)
      : args_(args),
        q_width_(int64_t{args.num_heads} * args.head_dim),
        qkv_width_(q_width_ + 2 * int64_t{args.num_kv_heads} * args.head_dim),
        residual_(array(args.hidden)),
        hidden_(array(args.hidden)),
        qkv_(array(qkv_width_)),
        attended_(array(q_width_)),
        inner_(array(args.inner)) {}

  void run() {
    begin();
    for (int i = 0; i < args_.num_layers; ++i) {
      const ops::CudaDecoderLayer& layer = args_.layers[i];
      if (i == 0 && args_.token_ids != nullptr) {
        norm(residual_.data(), nullptr, layer.input_norm, hidden_.data());
      } else {
        norm(hidden_.data(), residual_.data(), layer.input_norm, hidden_.data());
      }
      tap(i);
      layer_ = i;
      attend(layer);
      norm(hidden_.data(), residual_.data(), layer.post_norm, hidden_.data());
      product(ops::kGateUpMatrix, hidden_, args_.hidden,
              weight(layer.gate_up_weight, layer.gate_up_scales), layer.gate_up_bias,
              2 * args_.inner, inner_);
      product(ops::kDownMatrix, inner_, args_.inner, weight(layer.down_weight, layer.down_scales),
              layer.down_bias, args_.hidden, hidden_);
      sum_over_ranks(1);
    }
    end();
  }

 private:
  using Array = std::vector<std::byte>;

  // The embeddings in residual_, or what the stage before has left in both.
  void begin() {
    if (args_.token_ids == nullptr) {
      const auto* hidden = static_cast<const std::byte*>(args_.embedding);
      std::copy_n(hidden, hidden_.size(), hidden_.begin());
      std::copy_n(hidden + hidden_.size(), residual_.size(), residual_.begin());
      return;
    }
    embedding({.dtype = args_.dtype,
               .ids = args_.token_ids,
               .num_tokens = args_.rows,
               .table = args_.embedding,
               .table_rows = int64_t{1} << 31,  // ids are of the vocabulary
               .hidden = args_.hidden,
               .first_id = 0,
               .out = residual_.data()});
  }

  // What enters a layer, for who has asked for it.
  void tap(int layer) const {
    const ops::CudaDecoderTaps& taps = args_.taps;
    const int* const end = taps.layers + taps.count;
    const int* const found = std::find(taps.layers, end, layer);
    if (found == end) return;
    const size_t bytes = residual_.size() / static_cast<size_t>(args_.rows);
    auto* const first =
        static_cast<std::byte*>(taps.out) + static_cast<size_t>(found - taps.layers) * bytes;
    for (int64_t row = 0; row < args_.rows; ++row) {
      std::copy_n(residual_.begin() + row * static_cast<int64_t>(bytes), bytes,
                  first + static_cast<size_t>(row * taps.count) * bytes);
    }
  }

  // The normed state, or both for the next stage. The sum over the ranks is rank 0's to hand on.
  void end() {
    if (args_.final_norm != nullptr) {
      return norm(hidden_.data(), residual_.data(), args_.final_norm, args_.out);
    }
    if (args_.peers.rank != 0) std::ranges::fill(hidden_, std::byte{0});
    auto* const out = static_cast<std::byte*>(args_.out);
    std::ranges::copy(hidden_, out);
    std::ranges::copy(residual_, out + hidden_.size());
  }

  Array array(int64_t width) const {
    return Array(static_cast<size_t>(args_.rows * width) * size_of(args_.dtype));
  }

  void norm(const void* x, void* residual, const float* weight, void* out) const {
    rms_norm({.dtype = args_.dtype,
              .x = x,
              .residual = residual,
              .weight = weight,
              .eps = args_.eps,
              .rows = args_.rows,
              .n = args_.hidden,
              .out = out});
  }

  ops::WeightView weight(const void* data, const float* scales) const {
    return {.format = args_.weight_format, .data = data, .scales = scales};
  }

  // in [rows, k] to out [rows, n], or [rows, n / 2] of gate and up.
  void product(ops::DecoderMatrix matrix, const Array& in, int64_t k, const ops::WeightView& weight,
               const float* bias, int64_t n, Array& out) const {
    const bool gated = matrix == ops::kGateUpMatrix;
    if (args_.lora.rows.max_items == 0) return base_product(in, k, weight, bias, n, gated, out);
    if (!gated) {
      base_product(in, k, weight, bias, n, false, out);
      return add_adapters(matrix, in, k, bias, n, nullptr, out);
    }
    Array gate_up = array(n);
    base_product(in, k, weight, bias, n, false, gate_up);
    add_adapters(matrix, in, k, bias, n, &gate_up, out);
  }

  // To the base's product in `out`; with gate_up to that, whose activation goes to `out`.
  void add_adapters(ops::DecoderMatrix matrix, const Array& in, int64_t k, const float* bias,
                    int64_t n, const Array* gate_up, Array& out) const {
    const ops::CudaDecoderLora& lora = args_.lora;
    const int32_t place = lora.places[layer_ * ops::kNumDecoderMatrices + matrix];
    const int64_t max_ranks = ops::kMaxLoraParts * int64_t{ops::kMaxDecoderStepRank};
    std::vector<float> t(static_cast<size_t>(args_.rows * max_ranks));
    lora_shrink({.dtype = args_.dtype,
                 .rows = lora.rows,
                 .layers = lora.table + place,
                 .layer_stride = lora.slot_stride,
                 .x = in.data(),
                 .x_stride = k,
                 .k = k,
                 .max_ranks = max_ranks,
                 .splits = 1,
                 .pairs = false,
                 .t = t.data()});
    ops::CudaLoraExpand expand = {.dtype = args_.dtype,
                                  .out_dtype = args_.dtype,
                                  .rows = lora.rows,
                                  .layers = lora.table + place,
                                  .layer_stride = lora.slot_stride,
                                  .t = t.data(),
                                  .max_ranks = max_ranks,
                                  .splits = 1,
                                  .pairs = false,
                                  .num_parts = 1,
                                  .first_output = {},
                                  .num_outputs = {n},
                                  .silu_and_mul = gate_up != nullptr,
                                  .gate_up = gate_up == nullptr ? nullptr : gate_up->data(),
                                  .gate_up_stride = n,
                                  .bias = bias,
                                  .out = out.data(),
                                  .out_stride = gate_up == nullptr ? n : n / 2};
    if (gate_up != nullptr) set_parts(expand, {n / 2, n / 2});
    const int64_t kv = (n - q_width_) / 2;
    if (matrix == ops::kQkvMatrix) set_parts(expand, {q_width_, kv, kv});
    lora_expand(expand);
  }

  static void set_parts(ops::CudaLoraExpand& expand, const std::vector<int64_t>& widths) {
    expand.num_parts = static_cast<int>(widths.size());
    int64_t first = 0;
    for (int part = 0; part < expand.num_parts; ++part) {
      expand.first_output[part] = first;
      expand.num_outputs[part] = widths[static_cast<size_t>(part)];
      first += expand.num_outputs[part];
    }
  }

  void base_product(const Array& in, int64_t k, const ops::WeightView& weight, const float* bias,
                    int64_t n, bool gated, Array& out) const {
    linear({.dtype = args_.dtype,
            .in = in.data(),
            .in_stride = k,
            .weight = weight,
            .rows = args_.rows,
            .n = n,
            .k = k,
            .bias = bias,
            .out = out.data(),
            .out_stride = gated ? n / 2 : n,
            .out_dtype = args_.dtype,
            .silu_and_mul = gated});
  }

  void attend(const ops::CudaDecoderLayer& layer) {
    ops::CudaKvCache cache = args_.cache;
    cache.keys = layer.keys;
    cache.values = layer.values;
    product(ops::kQkvMatrix, hidden_, args_.hidden, weight(layer.qkv_weight, layer.qkv_scales),
            layer.qkv_bias, qkv_width_, qkv_);
    qk_norm_rope_cache({.dtype = args_.dtype,
                        .qkv = qkv_.data(),
                        .num_heads = args_.num_heads,
                        .q_norm = layer.q_norm,
                        .k_norm = layer.k_norm,
                        .eps = args_.eps,
                        .cos_sin = args_.cos_sin,
                        .rotary_dim = args_.rotary_dim,
                        .num_tokens = args_.rows,
                        .positions = args_.positions,
                        .slot_mapping = args_.slot_mapping,
                        .cache = cache});
    ops::CudaPagedAttention attention = {};
    attention.dtype = args_.dtype;
    attention.q = qkv_.data();
    attention.q_stride = qkv_width_;
    attention.out = attended_.data();
    attention.num_heads = args_.num_heads;
    attention.scale = args_.scale;
    attention.sliding_window = layer.sliding_window;
    attention.num_tokens = args_.rows;
    attention.num_seqs = args_.query_start == nullptr ? args_.rows : args_.num_seqs;
    attention.context_lens = args_.context_lens;
    attention.block_tables = args_.block_tables;
    attention.table_width = args_.table_width;
    // Whole contexts, as prompts are read: this kernel is given no chunks.
    std::vector<int32_t> query_start(static_cast<size_t>(args_.rows) + 1);
    std::iota(query_start.begin(), query_start.end(), 0);
    attention.query_start = args_.query_start == nullptr ? query_start.data() : args_.query_start;
    attention.cache = cache;
    paged_attention(attention);
    product(ops::kOutputMatrix, attended_, q_width_, weight(layer.o_weight, layer.o_scales),
            layer.o_bias, args_.hidden, hidden_);
    sum_over_ranks(0);
  }

  // hidden_ becomes the sum of the ranks', in rank order; `which` of a layer's two sums it is. An
  // element travels with the number of its sum, which the rank's own last word counts.
  void sum_over_ranks(int which) {
    const PeerWords& peers = args_.peers;
    if (peers.size == 1) return;
    uint64_t* const own = peers.regions[peers.rank];
    const uint64_t number = ++own[peers.count - 1];
    const int64_t size = args_.rows * args_.hidden;
    std::vector<float> values = read(args_.dtype, hidden_.data(), 0, size);
    const auto place = [&](int rank) {
      return (int64_t{which} * peers.size + rank) * ops::kMaxDecoderStepRows * args_.hidden;
    };
    for (int r = 0; r < peers.size; ++r) {
      if (r == peers.rank) continue;
      uint64_t* const to = peers.regions[r] + place(peers.rank);
      for (int64_t i = 0; i < size; ++i) {
        const uint64_t word =
            number << 32 | std::bit_cast<uint32_t>(values[static_cast<size_t>(i)]);
        std::atomic_ref<uint64_t>(to[i]).store(word);
      }
    }
    std::vector<float> sums(values.size());
    for (int r = 0; r < peers.size; ++r) {
      for (int64_t i = 0; i < size; ++i) {
        float& sum = sums[static_cast<size_t>(i)];
        sum += r == peers.rank ? values[static_cast<size_t>(i)]
                               : wait_for(own[place(r) + i], static_cast<uint32_t>(number));
      }
    }
    write(args_.dtype, hidden_.data(), 0, sums);
  }

  float wait_for(uint64_t& word, uint32_t number) const {
    for (;;) {
      const uint64_t seen = std::atomic_ref<uint64_t>(word).load();
      if (static_cast<uint32_t>(seen >> 32) == number) {
        return std::bit_cast<float>(static_cast<uint32_t>(seen));
      }
      if (std::atomic_ref<int>(const_cast<int&>(*args_.peers.aborted)).load() != 0) {
        throw Error("the decoder step's group has ended");
      }
      std::this_thread::yield();
    }
  }

  const ops::CudaDecoderStep& args_;
  int layer_ = 0;  // that runs
  int64_t q_width_;
  int64_t qkv_width_;
  Array residual_;
  Array hidden_;
  Array qkv_;
  Array attended_;
  Array inner_;
};

}  // namespace

void decoder_step(const ops::CudaDecoderStep& args) {
  DecoderStep(args).run();
}

}  // namespace quire::simulated
