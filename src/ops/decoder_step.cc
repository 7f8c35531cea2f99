#include "ops/decoder_step.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/group_tiles.h"

namespace quire::ops {
namespace {

// The kernel's own use, at most, for any model that it takes.
constexpr size_t kScratchBytes = size_t{32} << 20;
constexpr size_t kRowNumbersBytes = kMaxDecoderStepRows * sizeof(int32_t);

// One kernel for a step is used up to these numbers of sequences. Beyond them one op after the
// other is faster: measured on an H200 with 128 to 3,500 tokens of context, for models like
// Qwen3-0.6B (hidden size 1,024) and 8B (4,096). For ranks that share a large model's layers, more
// than two were no faster in one kernel.
constexpr int64_t kMostRows = 4;
constexpr int64_t kMostRowsOfLargeQuantised = 2;
constexpr int64_t kMostRowsOfLargeShared = 2;
// Of a large dense model with short contexts (8 rows with 256 tokens take 3 % less in one kernel,
// 6 rows with 3,500 the same).
constexpr int64_t kMostShortRows = 8;
constexpr int64_t kShortContext = 1024;
constexpr int64_t kSmallHidden = 2048;
// Steps with drafts have no other step in flight, so what a graph of many kernels takes to be
// launched counts, too. Few of a sequence's rows share a reading of its context, so long ones are
// left to the kernels of attention.
constexpr int64_t kMostVerifiedContext = 1024;
// With quantised weights each further row costs more in the kernel than beside it.
constexpr int64_t kMostVerifiedRowsOfQuantised = 2;
static_assert(std::max(kMostRows, kMostShortRows) <= kMaxDecoderStepRows &&
              DecoderStep::kMostVerifiedRows <= kMaxDecoderStepRows);

const float* pointer(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<float>() : nullptr;
}

CudaDecoderLayer to_cuda(const DecoderStepLayer& layer, const KvCacheView& cache) {
  return {.input_norm = pointer(layer.input_norm),
          .qkv_weight = layer.qkv->data(),
          .qkv_scales = layer.qkv->scales(),
          .qkv_bias = pointer(layer.qkv_bias),
          .q_norm = pointer(layer.q_norm),
          .k_norm = pointer(layer.k_norm),
          .o_weight = layer.o->data(),
          .o_scales = layer.o->scales(),
          .o_bias = pointer(layer.o_bias),
          .post_norm = pointer(layer.post_norm),
          .gate_up_weight = layer.gate_up->data(),
          .gate_up_scales = layer.gate_up->scales(),
          .gate_up_bias = pointer(layer.gate_up_bias),
          .down_weight = layer.down->data(),
          .down_scales = layer.down->scales(),
          .down_bias = pointer(layer.down_bias),
          .keys = cache.keys,
          .values = cache.values,
          .sliding_window = layer.sliding_window};
}

int64_t most_decoded_rows(int64_t context, int64_t hidden, const WeightFormat& weights,
                          int num_ranks) {
  if (hidden <= kSmallHidden) return kMostRows;
  if (num_ranks > 1) return kMostRowsOfLargeShared;
  if (!weights.is_dense()) return kMostRowsOfLargeQuantised;
  return context <= kShortContext ? kMostShortRows : kMostRows;
}

// Of a part, in a layer's slots.
int rank_of(const DecoderStepLayer& layer) {
  const LoraSlotLayer& slots = *layer.slots[kOutputMatrix];
  return static_cast<int>(slots.max_ranks / slots.num_parts);
}

// Whether the slots of a layer are as the kernel takes them: parts one behind the other.
bool has_parts(const LoraSlotLayer& slots, std::initializer_list<int64_t> widths) {
  if (slots.num_parts != std::ssize(widths)) return false;
  if (slots.max_ranks > slots.num_parts * kMaxDecoderStepRank) return false;
  int64_t first = 0;
  int part = 0;
  for (const int64_t width : widths) {
    if (slots.first_output[part] != first || slots.num_outputs[part] != width) return false;
    first += width;
    ++part;
  }
  return true;
}

CudaDecoderTaps taps_of(const DecoderStepTaps& taps, const CudaDecoderStep& args) {
  CudaDecoderTaps result;
  result.count = static_cast<int>(taps.layers.size());
  if (result.count == 0) return result;
  check(result.count <= kMaxDecoderStepTaps && std::ranges::is_sorted(taps.layers) &&
            taps.layers.front() >= 0 && taps.layers.back() < args.num_layers,
        "a step hands out the inputs of up to 8 of its layers, in order");
  check(taps.out.contiguous() && taps.out.dtype() == args.dtype &&
            taps.out.num_elements() == args.rows * result.count * args.hidden,
        "layers' inputs are [num_tokens, layers * hidden]");
  std::ranges::transform(taps.layers, result.layers,
                         [](int64_t layer) { return static_cast<int>(layer); });
  result.out = taps.out.raw();
  return result;
}

}  // namespace

size_t DecoderStep::bytes(int64_t num_layers) {
  const auto layers = static_cast<size_t>(num_layers);
  return kScratchBytes + align_up(layers * sizeof(CudaDecoderLayer)) +
         align_up(layers * kNumDecoderMatrices * sizeof(int32_t)) + align_up(kRowNumbersBytes);
}

bool DecoderStep::takes_weights(const DecoderStepModel& model) {
  const WeightFormat format = model.layers.front().qkv->format();
  const WeightFormat dense(model.dtype);
  if (model.embedding != nullptr && model.embedding->format() != dense) return false;
  if (format.is_dense() && format != dense) return false;
  if (format.is_integer() && !has_group_tiles(format)) return false;
  // Whether integers have offsets or a permutation follows from their numbers, which differ between
  // ranks, but all ranks have to decide alike.
  if (format.is_integer() && model.peers.size > 1) return false;
  const auto takes = [&](const Weight* weight) {
    return weight->format() == format && weight->permutation() == nullptr;
  };
  return std::all_of(model.layers.begin(), model.layers.end(), [&](const DecoderStepLayer& layer) {
    return takes(layer.qkv) && takes(layer.o) && takes(layer.gate_up) && takes(layer.down);
  });
}

bool DecoderStep::takes_slots(const DecoderStepModel& model) {
  const DecoderStepLayer& first = model.layers.front();
  if (model.peers.size > 1 || first.slots[0] == nullptr) return false;
  const int64_t attention = first.o->k();
  const int64_t kv = (first.qkv->n() - attention) / 2;
  return std::ranges::all_of(model.layers, [&](const DecoderStepLayer& layer) {
    const auto& slots = layer.slots;
    return has_parts(*slots[kQkvMatrix], {attention, kv, kv}) &&
           has_parts(*slots[kOutputMatrix], {layer.o->n()}) &&
           has_parts(*slots[kGateUpMatrix], {layer.down->k(), layer.down->k()}) &&
           has_parts(*slots[kDownMatrix], {layer.down->n()});
  });
}

std::optional<DecoderStep> DecoderStep::make(Stream& stream, const DecoderStepModel& model) {
  if (stream.is_cpu() || !stream.computes() || model.layers.empty() || !takes_weights(model)) {
    return std::nullopt;
  }
  check(model.layers.size() == model.caches.size(), "each layer has its cache");
  DecoderStep step;
  step.model_ = model;
  step.cache_ = model.caches.front();
  step.hidden_ = model.layers.front().qkv->k();
  step.weights_ = model.layers.front().qkv->format();
  step.inner_ = model.layers.front().down->k();
  step.num_layers_ = static_cast<int>(model.layers.size());
  CudaDecoderStep sizes = step.arguments(ForwardBatch(), Tensor());
  if (!stream.cuda_kernels().supports_decoder_step(stream.cuda(), sizes)) return std::nullopt;
  if (takes_slots(model)) {
    CudaDecoderStep adapted = sizes;
    adapted.lora.rows.max_items = 1;
    adapted.lora.max_rank = rank_of(model.layers.front());
    if (stream.cuda_kernels().supports_decoder_step(stream.cuda(), adapted)) {
      sizes = adapted;
      step.keep_places(model, stream.device());
    }
  }

  const auto scratch_bytes =
      static_cast<size_t>(stream.cuda_kernels().decoder_step_scratch_bytes(sizes));
  if (scratch_bytes > kScratchBytes) return std::nullopt;
  const Device& device = stream.device();
  step.scratch_ = Buffer(scratch_bytes, device);
  std::vector<CudaDecoderLayer> layers;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    layers.push_back(to_cuda(model.layers[i], model.caches[i]));
  }
  const size_t layer_bytes = layers.size() * sizeof(CudaDecoderLayer);
  step.layers_ = Buffer(layer_bytes, device);
  device.memory->upload(step.layers_.data(), layer_bytes,
                        [&](std::byte* to) { std::memcpy(to, layers.data(), layer_bytes); });
  step.row_numbers_ = Buffer(kRowNumbersBytes, device);
  device.memory->upload(step.row_numbers_.data(), kRowNumbersBytes, [](std::byte* to) {
    auto* numbers = reinterpret_cast<int32_t*>(to);
    std::iota(numbers, numbers + kMaxDecoderStepRows, 0);
  });
  device.memory->finish_uploads();
  return step;
}

void DecoderStep::keep_places(const DecoderStepModel& model, const Device& device) {
  const DecoderStepLayer& first = model.layers.front();
  slot_table_ = first.slots[0]->slots;
  slot_stride_ = first.slots[0]->stride;
  slot_rank_ = rank_of(first);
  for (const DecoderStepLayer& layer : model.layers) {
    for (const LoraSlotLayer* slots : layer.slots) {
      check(slots->stride == slot_stride_, "a slot's table has all layers");
      slot_table_ = std::min(slot_table_, slots->slots, std::less<>());
    }
  }
  std::vector<int32_t> places;
  for (const DecoderStepLayer& layer : model.layers) {
    for (const LoraSlotLayer* slots : layer.slots) {
      places.push_back(static_cast<int32_t>(slots->slots - slot_table_));
    }
  }
  const size_t bytes = places.size() * sizeof(int32_t);
  slot_places_ = Buffer(bytes, device);
  device.memory->upload(slot_places_.data(), bytes,
                        [&](std::byte* to) { std::memcpy(to, places.data(), bytes); });
}

CudaDecoderStep DecoderStep::arguments(const ForwardBatch& batch, const Tensor& out) const {
  const auto ints = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.data<int32_t>() : nullptr;
  };
  return {
      .dtype = model_.dtype,
      .weight_format = weights_,
      .rows = batch.num_tokens,
      .hidden = hidden_,
      .inner = inner_,
      .num_heads = model_.num_heads,
      .num_kv_heads = cache_.num_kv_heads,
      .head_dim = cache_.head_dim,
      .eps = model_.eps,
      .scale = model_.scale,
      .cos_sin = model_.cos_sin.data<float>(),
      .rotary_dim = static_cast<int>(model_.cos_sin.dim(1)),
      .layers = reinterpret_cast<const CudaDecoderLayer*>(layers_.data()),
      .num_layers = num_layers_,
      .final_norm = pointer(model_.final_norm),
      .embedding = model_.embedding != nullptr ? model_.embedding->data() : nullptr,
      .token_ids = ints(batch.token_ids),
      .positions = ints(batch.positions),
      .slot_mapping = batch.slot_mapping.defined() ? batch.slot_mapping.data<int64_t>() : nullptr,
      .query_start = batch.max_decode_queries == 1 ? nullptr : ints(batch.query_start),
      .num_seqs = batch.num_seqs,
      .context_lens = ints(batch.context_lens),
      .block_tables = ints(batch.block_tables),
      .table_width = batch.block_tables.defined() ? batch.block_tables.dim(1) : 0,
      .cache = {.dtype = cache_.dtype,
                .keys = cache_.keys,
                .values = cache_.values,
                .block_size = cache_.block_size,
                .num_kv_heads = cache_.num_kv_heads,
                .head_dim = cache_.head_dim},
      .out = out.defined() ? out.raw() : nullptr,
      .scratch = scratch_.data(),
      .peers = model_.peers};
}

bool DecoderStep::takes(const ForwardBatch& batch, int64_t hidden, const WeightFormat& weights,
                        int num_ranks) {
  if (batch.num_decode_seqs != batch.num_seqs) return false;
  if (batch.max_decode_queries > 1) {
    const int64_t most = weights.is_dense() ? kMostVerifiedRows : kMostVerifiedRowsOfQuantised;
    return batch.num_tokens <= most && batch.max_context_len <= kMostVerifiedContext;
  }
  return batch.num_tokens == batch.num_seqs &&
         batch.num_seqs <= most_decoded_rows(batch.max_context_len, hidden, weights, num_ranks);
}

void DecoderStep::run(Stream& stream, const ForwardBatch& batch, const Tensor& in,
                      const Tensor& out, const DecoderStepTaps& taps,
                      const CudaLoraRows* adapters) const {
  CudaDecoderStep args = arguments(batch, out);
  if (adapters != nullptr) {
    check(takes_adapters() && adapters->first_row == 0 && adapters->num_rows == args.rows,
          "adapters are those of a step's rows, for a kernel that takes them");
    args.lora = {.rows = *adapters,
                 .max_rank = slot_rank_,
                 .table = slot_table_,
                 .slot_stride = slot_stride_,
                 .places = reinterpret_cast<const int32_t*>(slot_places_.data())};
  }
  args.taps = taps_of(taps, args);
  const auto check_sizes = [&](const Tensor& tensor, bool is_state) {
    check(tensor.contiguous() && tensor.dtype() == args.dtype &&
              tensor.num_elements() == (is_state ? 2 : 1) * args.rows * args.hidden,
          "embeddings and outputs are [num_tokens, hidden], a stage's state twice that");
  };
  check_sizes(out, !model_.final_norm.defined());
  const bool embeds = model_.embedding != nullptr;
  check(in.defined() == (!embeds || model_.peers.size > 1),
        "tokens are embedded before where ranks have parts of the table");
  if (in.defined()) {
    check_sizes(in, !embeds);
    args.embedding = in.raw();
    args.token_ids = embeds ? reinterpret_cast<const int32_t*>(row_numbers_.data()) : nullptr;
  }
  stream.cuda_kernels().decoder_step(stream.cuda(), args);
}

}  // namespace quire::ops
