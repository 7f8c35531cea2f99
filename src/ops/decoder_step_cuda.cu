// A whole decode step of a decoder in one kernel: a block on every multiprocessor, which stays for
// all layers. One warp of each streams the block's share of the weights into shared memory
// (decoder_step_ring.cuh) while the others compute; activations go from block to block in tagged
// words (decoder_step_exchange.cuh). So weights stream at the pace of the memory, while each of a
// layer's five exchanges costs about the time of a store and a load.
//
// A layer's chain: after_mlp of the layer before -> qkv -> (partials ->) attention ->
// after_attention -> inner -> after_mlp. A block reads an exchange only if it contributes to the
// next one, and has then read all of it, but for attention's units: they read their heads' part of
// qkv, and each word of it is read by some unit. Who writes an exchange of the next layer has thus
// waited for all readers of the same exchange in this layer: one buffer of each is enough.
#include "core/check_cuda.h"
#include "core/stream_cuda.h"
#include "ops/decoder_step_layers.cuh"

namespace quire::ops::cuda {
namespace {

using namespace step;  // NOLINT(google-build-using-namespace)

template <typename T, int kSlots, int kHeadDim>
__global__ void __launch_bounds__(kThreads, 1)
    decoder_step_kernel(const __grid_constant__ CudaDecoderStep args,
                        const __grid_constant__ Exchanges exchanges) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint32_t base = hopper::shared_address(in_shared<unsigned char>(0));
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  if (thread == 0) {
    BlockState::shares() = shares_of(args);
    init_ring(base + kBarriersAt);
  }
  __syncthreads();
  const Ring ring(base, base + kBarriersAt);
  if (thread >= kComputeThreads) {
    stream_weights(args, ring, lane);
    return;
  }
  BlockState block(thread, static_cast<int>(args.rows), args.cache.block_size, ring);
  compute<T, kSlots, kHeadDim>(block, args, exchanges);
  block.synchronize();
  if (thread == 0) finish(args, exchanges);
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

// Words of the exchanges, for the most rows: the scratch is the same for all.
struct ExchangeSizes {
  int64_t hidden;
  int64_t qkv;
  int64_t attention;
  int64_t inner;
  int64_t partials;

  explicit ExchangeSizes(const CudaDecoderStep& args)
      : hidden(kMaxRows * args.hidden / 2),
        qkv(kMaxRows * int64_t{args.num_heads + 2 * args.num_kv_heads} * args.head_dim / 2),
        attention(kMaxRows * int64_t{args.num_heads} * args.head_dim / 2),
        inner(kMaxRows * args.inner / 2),
        partials(int64_t{kMaxRows} * args.num_heads * kMaxChunks * (args.head_dim + 2)) {}

  int64_t total() const { return 2 * hidden + qkv + attention + inner + partials; }
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
  return exchanges;
}

using Kernel = void (*)(CudaDecoderStep, Exchanges);

// Of the residual, in a block of so many.
int64_t features_per_block(int64_t hidden, int64_t blocks) {
  return 2 * ((hidden / 2 + blocks - 1) / blocks);
}

template <typename T, int kHeadDim>
Kernel kernel_for_hidden(int64_t hidden, int64_t blocks) {
  const auto takes = [&](int slots) {
    return hidden <= slots * kSlotColumns &&
           features_per_block(hidden, blocks) <= 2 * kGroupRows * projection_tiles(slots);
  };
  if (takes(1)) return decoder_step_kernel<T, 1, kHeadDim>;
  if (takes(2)) return decoder_step_kernel<T, 2, kHeadDim>;
  return decoder_step_kernel<T, 4, kHeadDim>;
}

template <typename T>
Kernel kernel_for_head(const CudaDecoderStep& args, int64_t blocks) {
  return args.head_dim == 64 ? kernel_for_hidden<T, 64>(args.hidden, blocks)
                             : kernel_for_hidden<T, 128>(args.hidden, blocks);
}

Kernel kernel_for(const CudaDecoderStep& args, int64_t blocks) {
  return args.dtype == DType::kBFloat16 ? kernel_for_head<__nv_bfloat16>(args, blocks)
                                        : kernel_for_head<__half>(args, blocks);
}

constexpr int64_t kMaxHidden = 4 * kSlotColumns;
static_assert(4 * kMaxHidden <= kSlotBytes, "a norm's weights fit in a slot");

}  // namespace

bool supports_decoder_step(CudaStream& stream, const CudaDecoderStep& args) {
  const auto in_runs = [](int64_t columns) { return columns > 0 && columns % kRunColumns == 0; };
  if (stream.compute_capability() < 90) return false;
  if (stream.max_shared_bytes() < static_cast<size_t>(kSharedBytes)) return false;
  if (args.dtype != DType::kBFloat16 && args.dtype != DType::kFloat16) return false;
  if (args.cache.dtype != args.dtype) return false;
  if (args.head_dim != 64 && args.head_dim != 128) return false;
  if (args.num_heads <= 0 || args.num_kv_heads <= 0) return false;
  if (args.num_heads % args.num_kv_heads != 0 || args.num_heads / args.num_kv_heads > 8) {
    return false;
  }
  if (args.rotary_dim < 0 || args.rotary_dim % 2 != 0 || args.rotary_dim > args.head_dim) {
    return false;
  }
  if (!in_runs(args.hidden) || !in_runs(args.inner) || args.hidden > kMaxHidden) return false;
  const int64_t blocks = stream.num_multiprocessors();
  if (!work_fits(args, blocks)) return false;
  return features_per_block(args.hidden, blocks) <= 2 * kGroupRows * kMaxProjectionTiles;
}

int64_t decoder_step_scratch_bytes(const CudaDecoderStep& sizes) {
  return kHeaderBytes + static_cast<int64_t>(sizeof(Word)) * ExchangeSizes(sizes).total();
}

void decoder_step(CudaStream& stream, const CudaDecoderStep& args) {
  check(supports_decoder_step(stream, args), "a decoder step is asked for a model that it takes");
  check(args.rows >= 1 && args.rows <= kMaxRows, "a decoder step has 1 to 8 rows");
  check(args.num_layers >= 1, "a decoder has layers");
  const Kernel kernel = kernel_for(args, stream.num_multiprocessors());
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
      "giving the decoder step its shared memory");
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(stream.num_multiprocessors());
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream.get();
  // Blocks wait for each other: all of them have to be on the device at a time.
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check_cuda(
      cudaLaunchKernelEx(&config, kernel, args, exchanges_in(args.scratch, ExchangeSizes(args))),
      "launching the decoder step");
}

}  // namespace quire::ops::cuda
