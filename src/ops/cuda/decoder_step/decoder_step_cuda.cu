// A whole decode step of a decoder in one kernel: a block on every multiprocessor, which stays for
// all layers. One warp of each streams the block's share of the weights and of the cached contexts
// into shared memory (ring.cuh) while the others compute; activations go from block to
// block in tagged words (exchange.cuh). So both stream at the pace of the memory,
// while each of a layer's five exchanges costs about the time of a store and a load.
//
// A layer's chain: after_mlp of the layer before -> qkv -> (partials ->) attention ->
// after_attention -> inner -> after_mlp. A block reads an exchange only if it contributes to the
// next one, and has then read all of it, but for attention's units: they read their heads' part of
// qkv, and each word of it is read by some unit. Who writes an exchange of the next layer has thus
// waited for all readers of the same exchange in this layer: one buffer of each is enough.
//
// On several ranks the chain is the same, but that an element of after_attention and after_mlp is
// the sum of what all ranks have for it (sum_over_ranks() of exchange.cuh).
#include <algorithm>
#include <span>
#include <utility>

#include "base/ceil_div.h"
#include "core/check_cuda.h"
#include "core/launch.cuh"
#include "core/stream_cuda.h"
#include "ops/cuda/decoder_step/adapters.cuh"
#include "ops/cuda/decoder_step/kernel.cuh"
#include "ops/cuda/elements.cuh"

namespace quire::ops::cuda {
namespace {

using namespace step;  // NOLINT(google-build-using-namespace)

bool has_adapters(const CudaDecoderStep& args) {
  return args.lora.rows.max_items > 0;
}

// Words of the exchanges, for the most rows: the scratch is the same for all.
struct ExchangeSizes {
  int64_t hidden;
  int64_t qkv;
  int64_t attention;
  int64_t inner;
  int64_t partials;
  int64_t lora;  // of each of a layer's matrices; 0: there are no adapters

  explicit ExchangeSizes(const CudaDecoderStep& args)
      : hidden(kMaxRows * args.hidden / 2),
        qkv(kMaxRows * int64_t{args.num_heads + 2 * args.num_kv_heads} * args.head_dim / 2),
        attention(kMaxRows * int64_t{args.num_heads} * args.head_dim / 2),
        inner(kMaxRows * args.inner / 2),
        partials(int64_t{kMaxRows} * args.num_heads * kMaxChunks * (args.head_dim + 2)),
        lora(has_adapters(args)
                 ? most_piece_words(
                       std::max({args.hidden, args.inner, int64_t{args.num_heads} * args.head_dim}))
                 : 0) {}

  int64_t total() const {
    return 2 * hidden + qkv + attention + inner + partials + kNumDecoderMatrices * lora;
  }
};

constexpr int64_t kHeaderBytes = 128;

Exchanges exchanges_in(void* scratch, const ExchangeSizes& sizes) {
  auto* header = static_cast<uint32_t*>(scratch);
  Exchanges exchanges{};
  exchanges.last_tag = header;
  exchanges.finished_blocks = header + 1;
  Word* next = reinterpret_cast<Word*>(static_cast<char*>(scratch) + kHeaderBytes);
  const auto take = [&next](int64_t words) {
    Word* taken = next;
    next += words;
    return taken;
  };
  exchanges.after_attention = take(sizes.hidden);
  exchanges.after_mlp = take(sizes.hidden);
  exchanges.qkv = take(sizes.qkv);
  exchanges.attention = take(sizes.attention);
  exchanges.inner = take(sizes.inner);
  exchanges.partials = take(sizes.partials);
  exchanges.lora = take(kNumDecoderMatrices * sizes.lora);
  exchanges.lora_words = sizes.lora;
  return exchanges;
}

// How a slot of weights is used, by their format.
struct SlotUse {
  int64_t bytes;
  int64_t columns;
  int64_t warps;
  int64_t unit_rows;
  int64_t share_features;
  bool of_integers;  // activations, too

  template <typename W>
  static constexpr SlotUse of() {
    return {W::kSlotBytes, kSlotColumns<W>,   W::kWarpsPerSlot,
            W::kUnitRows,  kShareFeatures<W>, W::kIsInteger};
  }
  int64_t slots_at_once() const { return kWarps / warps; }
  // Of activations in shared memory.
  int64_t row_stride(int64_t columns) const {
    return of_integers ? integer_row_stride(static_cast<int>(columns)) : 2 * columns + 64;
  }
  int64_t activation_bytes(int64_t rows, int64_t columns) const {
    return of_integers ? integer_activation_bytes(rows, columns) : rows * row_stride(columns);
  }
  // Of n features of a product, the most groups of weight rows that a block has, and the least.
  int64_t most_groups(int64_t n, int64_t blocks) const {
    return ceil_div(share_features * ceil_div(n / share_features, blocks), unit_rows);
  }
  int64_t least_groups(int64_t n, int64_t blocks) const {
    return ceil_div(share_features * (n / share_features / blocks), unit_rows);
  }
};

bool has_shifts(const CudaDecoderStep& args) {
  return group_tiles(args.weight_format, 0, 0).has_shifts;
}

template <bool kFourBits>
SlotUse integer_slot_use(const CudaDecoderStep& args) {
  return has_shifts(args) ? SlotUse::of<IntegerWeights<__half, kFourBits, true>>()
                          : SlotUse::of<IntegerWeights<__half, kFourBits, false>>();
}

SlotUse slot_use(const CudaDecoderStep& args) {
  switch (args.weight_format.kind) {
    case WeightKind::kDense:
      return SlotUse::of<DenseWeights<__half>>();
    case WeightKind::kFloat8:
      return SlotUse::of<Float8Weights<__half, false>>();
    case WeightKind::kInt4:
      return integer_slot_use<true>(args);
    default:
      return integer_slot_use<false>(args);
  }
}

// A product that a block takes its share of: the most groups of weight rows, and the least, and
// their columns.
struct ProductSize {
  int64_t groups;
  int64_t least_groups;
  int64_t k;

  int64_t column_slots(const SlotUse& use) const { return ceil_div(k, use.columns); }
  // See partial_at().
  int64_t sum_bytes(const SlotUse& use, int64_t rows, bool ahead) const {
    const auto sums_of = [&](int64_t of) {
      const int at_once = static_cast<int>(use.slots_at_once());
      const int64_t added_up = sum_columns_of(static_cast<int>(of), at_once);
      return of * (ahead ? std::min(added_up, column_slots(use)) : column_slots(use));
    };
    const int64_t sums = std::max(sums_of(groups), sums_of(least_groups));
    return 4 * sums * use.warps * rows * use.unit_rows;
  }
};

// Hands out shared memory from an offset on.
class SharedPlaces {
 public:
  explicit SharedPlaces(int64_t begin) : end_(ceil_div(begin, kAlignment) * kAlignment) {}
  int take(int64_t bytes) {
    return static_cast<int>(std::exchange(end_, end_ + ceil_div(bytes, kAlignment) * kAlignment));
  }
  int64_t end() const { return end_; }

 private:
  static constexpr int64_t kAlignment = 16;

  int64_t end_;
};

// Sums of a product's adapters, from an offset on: behind its other partial sums. Returns the end.
int64_t place_adapter_sums(SharedLayout& layout, int64_t at, int64_t rows, int64_t most_groups) {
  SharedPlaces places(at);
  layout.lora_sums_at = places.take(4 * rows * kRowRanks);
  layout.lora_added_at = places.take(4 * rows * most_groups * kGroupRows);
  layout.lora_warps_at = places.take(4 * rows * kWarps * kGroupRows);
  return places.end();
}

// What is known of a step's adapters, and the threads' numbers of A and B, from an offset on.
// Returns the end.
int64_t place_adapters(SharedLayout& layout, int64_t at, const CudaDecoderStep& args,
                       std::span<const ProductSize> products, int64_t rows) {
  SharedPlaces places(at);
  constexpr int kWordBytes = 16;
  int runs = 0;
  int64_t groups = 0;
  for (const ProductSize& product : products) {
    const Pieces pieces(kMaxLoraParts * args.lora.max_rank, static_cast<int>(product.k));
    runs = std::max(runs, pieces.columns / kRunColumns / kWarps);
    groups = std::max(groups, product.groups);
  }
  layout.lora_a_at = places.take(int64_t{kWordBytes} * kComputeThreads * runs);
  // Outputs that come first have room: those of the others are read from the L2 cache.
  constexpr int64_t kMostBytes = 32 * 1024;
  layout.lora_b_steps = args.lora.max_rank / kRankStep;
  const int64_t of_output = int64_t{kWordBytes} * kComputeThreads * layout.lora_b_steps;
  const int64_t outputs = ceil_div(groups * kGroupRows * rows, int64_t{kComputeThreads});
  layout.lora_b_outputs = static_cast<int>(std::min(outputs, kMostBytes / of_output));
  layout.lora_b_at = places.take(of_output * layout.lora_b_outputs);
  layout.lora_at = places.take(static_cast<int64_t>(sizeof(StepAdapters)) +
                               int64_t{4} * args.num_layers * kNumDecoderMatrices);
  constexpr int64_t kBuffers = 4;
  layout.lora_entries_at = places.take(kBuffers * rows * kNumDecoderMatrices *
                                       static_cast<int64_t>(sizeof(CudaLoraLayer)));
  return places.end();
}

// With activations in parts of so many column slots. The ring gets what the others leave.
SharedLayout layout_with(int64_t slots_in_part, const SlotUse& use,
                         std::span<const ProductSize> products, const CudaDecoderStep& args,
                         int64_t rows, bool ahead, int64_t max_bytes) {
  int64_t sums = 0;          // in bytes
  int64_t longest_part = 0;  // in slots of the ring
  int64_t most_groups = 0;
  for (const ProductSize& product : products) {
    sums = std::max(sums, product.sum_bytes(use, rows, ahead));
    most_groups = std::max(most_groups, product.groups);
    longest_part =
        std::max(longest_part, product.groups * std::min(product.column_slots(use), slots_in_part));
  }
  SharedLayout layout{};
  const int64_t attention_end = kScratchAt + kAttentionScratchBytes + (rows - 1) * kOwnTokenBytes;
  int64_t scratch_end = kScratchAt + sums;
  if (has_adapters(args)) {
    scratch_end = place_adapter_sums(layout, scratch_end, rows, most_groups);
  }
  // The attention's scratch takes their place, as it comes between products; and where rows are
  // read ahead, that of the activations.
  if (!ahead) scratch_end = std::max(scratch_end, attention_end);
  layout.x_at = static_cast<int>(ceil_div(scratch_end, int64_t{128}) * 128);
  layout.x_columns = static_cast<int>(slots_in_part * use.columns);
  layout.x_stride = static_cast<int>(use.row_stride(layout.x_columns));
  int64_t end = layout.x_at + use.activation_bytes(rows, layout.x_columns);
  if (ahead) end = std::max(end, attention_end);
  if (has_adapters(args)) end = place_adapters(layout, end, args, products, rows);
  layout.ring_at = static_cast<int>(ceil_div(end, int64_t{128}) * 128);
  layout.num_slots = static_cast<int>(
      std::clamp((max_bytes - layout.ring_at) / use.bytes, int64_t{0}, int64_t{kMaxSlots}));
  // See multiply_slots(): a slot that a part uses again has to come to the same warps.
  if (longest_part > layout.num_slots) layout.num_slots -= layout.num_slots % use.slots_at_once();
  // Behind the weights that a full ring asks for at a time, an exchange takes longer. Where
  // exchanges are most of the time, it is better to ask for no more than what the memory needs to
  // be busy.
  constexpr int kMostIntegersOnWay = 2;
  layout.most_on_way =
      use.of_integers ? std::min(layout.num_slots, kMostIntegersOnWay) : layout.num_slots;
  layout.bytes = static_cast<int>(layout.ring_at + layout.num_slots * use.bytes);
  return layout;
}

// Column slots of a part of activations, at most. What is read ahead has short parts: the next one
// is on its way while one is computed.
int64_t most_slots_in_part(const SlotUse& use, int64_t rows, bool ahead, int64_t longest) {
  if (ahead) return 1;
  const int64_t most_bytes = (use.of_integers ? 46 : 33) * 1024;
  int64_t most = longest;
  while (most > 1 && use.activation_bytes(rows, most * use.columns) > most_bytes) --most;
  return most;
}

// The longest parts of activations that leave room for enough slots, or else the most slots.
SharedLayout layout_for(const CudaDecoderStep& args, int64_t rows, const CudaStream& stream) {
  const SlotUse use = slot_use(args);
  const int enough_slots = use.of_integers ? 8 : 10;
  const int64_t blocks = stream.num_multiprocessors();
  const int64_t attention = int64_t{args.num_heads} * args.head_dim;
  const int64_t qkv = attention + 2 * int64_t{args.num_kv_heads} * args.head_dim;
  const auto product = [&](int64_t sides, int64_t n, int64_t k) {
    return ProductSize{sides * use.most_groups(n, blocks), sides * use.least_groups(n, blocks), k};
  };
  const ProductSize products[] = {product(1, qkv, args.hidden), product(1, args.hidden, attention),
                                  product(2, args.inner, args.hidden),
                                  product(1, args.hidden, args.inner)};
  int64_t longest = 1;
  for (const ProductSize& product : products)
    longest = std::max(longest, product.column_slots(use));
  const bool ahead = reads_ahead(args, rows, blocks);
  const int64_t most = most_slots_in_part(use, rows, ahead, longest);
  SharedLayout best{};
  for (int64_t slots = most; slots > 0; --slots) {
    const SharedLayout layout = layout_with(slots, use, products, args, rows, ahead,
                                            static_cast<int64_t>(stream.max_shared_bytes()));
    if (layout.num_slots > best.num_slots) best = layout;
    if (best.num_slots >= enough_slots) break;
  }
  return best;
}

Kernel kernel_for(const CudaDecoderStep& args, bool ahead) {
  const WeightFormat& format = args.weight_format;
  switch (format.kind) {
    case WeightKind::kDense:
      return has_adapters(args) ? dense_lora_kernel(args, ahead) : dense_kernel(args, ahead);
    case WeightKind::kFloat8:
      return format.group_size == 0 ? float8_kernel(args) : float8_blocks_kernel(args);
    case WeightKind::kInt4:
      return has_shifts(args) ? int4_shifts_kernel(args) : int4_kernel(args);
    default:
      return has_shifts(args) ? int8_shifts_kernel(args) : int8_kernel(args);
  }
}

// Without this a kernel is loaded when it is first launched.
void load(const CudaStream& stream, Kernel kernel) {
  allow_shared_memory(stream, kernel);
  cudaFuncAttributes attributes = {};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "loading the kernel of a decoder step");
}

// Of a product's inputs, what there have to be whole multiples of; 0 where there is no kernel for
// the weights' format. Scales of blocks are copied by 16 bytes, so for a slot's row there are whole
// fours of them.
int64_t least_columns(const CudaDecoderStep& args) {
  const int64_t group = args.weight_format.group_size;
  switch (args.weight_format.kind) {
    case WeightKind::kDense:
      return kRunColumns;
    case WeightKind::kFloat8:
      return group == 0 ? kFloat8Block : group == kFloat8Block ? 4 * kFloat8Block : 0;
    default:
      return group == 0 || group == kTileInputs ? kTileInputs : 0;
  }
}

// Whether the weights are of a format and of sizes that there is a kernel for.
bool takes_weights(const CudaDecoderStep& args) {
  const int64_t columns = least_columns(args);
  if (columns == 0) return false;
  const int64_t features = slot_use(args).share_features;
  const int64_t qkv = int64_t{args.num_heads + 2 * args.num_kv_heads} * args.head_dim;
  for (const int64_t n : {qkv, args.hidden, args.inner}) {
    if (n % features != 0) return false;
  }
  for (const int64_t k : {args.hidden, args.inner, int64_t{args.num_heads} * args.head_dim}) {
    if (k <= 0 || k % columns != 0) return false;
  }
  return true;
}

// Adapters are taken beside dense weights in bfloat16.
bool takes_adapters(const CudaDecoderStep& args) {
  const int rank = args.lora.max_rank;
  if (rank <= 0 || rank > kMaxDecoderStepRank || rank % kLoraRankStep != 0) return false;
  return args.weight_format.is_dense() && args.dtype == DType::kBFloat16;
}

bool takes(const CudaStream& stream, const CudaDecoderStep& args) {
  if (stream.compute_capability() < 90) return false;
  if (args.dtype != DType::kBFloat16 && args.dtype != DType::kFloat16) return false;
  if (args.cache.dtype != args.dtype) return false;
  if (args.head_dim != 64 && args.head_dim != 128) return false;
  if (args.num_heads <= 0 || args.num_kv_heads <= 0) return false;
  if (args.num_heads % args.num_kv_heads != 0 || args.num_heads / args.num_kv_heads > 8) {
    return false;
  }
  if (args.cache.block_size % kRowTokens != 0) return false;
  if (args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim) {
    return false;
  }
  if (!takes_weights(args)) return false;
  const int64_t blocks = stream.num_multiprocessors();
  if (!work_fits(args, blocks)) return false;
  if (has_adapters(args) && !takes_adapters(args)) return false;
  // A thread owns an element of the residual.
  const SlotUse use = slot_use(args);
  if (use.most_groups(args.hidden, blocks) * use.unit_rows * kMaxRows > kComputeThreads) {
    return false;
  }
  if (args.peers.size > 1 &&
      args.peers.count < decoder_step_peer_words(args.hidden, args.peers.size)) {
    return false;
  }
  const auto fits = [&](DecoderStepReads reads) {
    CudaDecoderStep step = args;
    step.reads = reads;
    return layout_for(step, kMaxRows, stream).num_slots >= use.slots_at_once();
  };
  return fits(DecoderStepReads::kRowByRow) &&
         (!reads_ahead(args, kMaxRows, blocks) || fits(DecoderStepReads::kAhead));
}

}  // namespace

bool supports_decoder_step(CudaStream& stream, const CudaDecoderStep& args) {
  if (!takes(stream, args)) return false;
  for (const int64_t rows : {int64_t{1}, int64_t{kMaxRows}}) {
    load(stream, kernel_for(args, reads_ahead(args, rows, stream.num_multiprocessors())));
  }
  return true;
}

int64_t decoder_step_scratch_bytes(const CudaDecoderStep& sizes) {
  return kHeaderBytes + static_cast<int64_t>(sizeof(Word)) * ExchangeSizes(sizes).total();
}

void decoder_step(CudaStream& stream, const CudaDecoderStep& args) {
  check(takes(stream, args), "a decoder step is asked for a model that it takes");
  check(args.rows >= 1 && args.rows <= kMaxRows, "a decoder step has 1 to 8 rows");
  check(args.num_layers >= 1, "a decoder has layers");
  check(args.lora.rows.max_items <= args.rows, "a step has no more adapters than rows");
  check(args.taps.count >= 0 && args.taps.count <= kMaxDecoderStepTaps, "a step has up to 8 taps");
  const Kernel kernel =
      kernel_for(args, reads_ahead(args, args.rows, stream.num_multiprocessors()));
  const SharedLayout layout = layout_for(args, args.rows, stream);
  allow_shared_memory(stream, kernel);
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(stream.num_multiprocessors());
  config.blockDim = kThreads;
  config.dynamicSmemBytes = static_cast<size_t>(layout.bytes);
  config.stream = stream.get();
  // Blocks wait for each other: all of them have to be on the device at a time.
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, args,
                                exchanges_in(args.scratch, ExchangeSizes(args)), layout),
             "launching the decoder step");
}

}  // namespace quire::ops::cuda
