#pragma once
// The decoder step's kernel. Instantiated for each format of weights, and with adapters, in a file
// of its own, to be compiled side by side. Which way activations are read is a kernel's, too: the
// code of both would not stay in the instruction cache.
#include "ops/cuda/decoder_step/layers.cuh"

namespace quire::ops::cuda::step {

template <typename W, int kHeadDim, typename Adapters>
__global__ void __launch_bounds__(kThreads, 1)
    decoder_step_kernel(const __grid_constant__ CudaDecoderStep args,
                        const __grid_constant__ Exchanges exchanges,
                        const __grid_constant__ SharedLayout layout) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  const uint32_t base = shared_address(in_shared<unsigned char>(0));
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const Ring ring{base + layout.ring_at, base + kBarriersAt,
                  static_cast<uint32_t>(layout.num_slots), W::kSlotBytes,
                  static_cast<uint32_t>(layout.most_on_way)};
  if (thread == 0) {
    BlockState::shares() = shares_of<W>(args);
    init_ring(ring);
  }
  if constexpr (Adapters::kAny) Adapters::begin(args, layout, thread);
  __syncthreads();
  if (thread >= kComputeThreads) {
    stream_weights<W, Adapters>(args, exchanges, layout, ring, lane);
    return;
  }
  BlockState block(thread, static_cast<int>(args.rows), ring, layout);
  compute<W, kHeadDim, Adapters>(block, args, exchanges);
  block.synchronize();
  if (thread == 0) finish<W>(args, exchanges);
#else
  __trap();  // rather than leave the outputs as they are
#endif
}

using Kernel = void (*)(CudaDecoderStep, Exchanges, SharedLayout);

// Whether rows are read ahead: of dense weights, where a block's share of a layer takes long beside
// the loads. With 2.9 MB of them (a model of 8 billion on an H200) a step of three to eight rows
// takes a tenth less, with 0.2 MB (0.6 billion) it would take a quarter more.
inline bool reads_ahead(const CudaDecoderStep& args, int64_t rows, int64_t blocks) {
  constexpr int64_t kFewRows = 2;
  constexpr int64_t kLongShare = int64_t{1} << 20;
  if (!args.weight_format.is_dense()) return false;
  if (args.reads != DecoderStepReads::kBySizes) return args.reads == DecoderStepReads::kAhead;
  if (rows <= kFewRows) return false;
  const int64_t attention = int64_t{args.num_heads} * args.head_dim;
  const int64_t outputs =
      2 * attention + 2 * int64_t{args.num_kv_heads} * args.head_dim + 3 * args.inner;
  return 2 * args.hidden * outputs >= kLongShare * blocks;
}

template <typename W, typename Adapters = NoAdapters>
Kernel kernel_for_head(const CudaDecoderStep& args) {
  return args.head_dim == 64 ? decoder_step_kernel<W, 64, Adapters>
                             : decoder_step_kernel<W, 128, Adapters>;
}

// `ahead`: see reads_ahead().
template <typename W, typename Adapters = NoAdapters>
Kernel kernel_of(const CudaDecoderStep& args, bool ahead) {
  return ahead ? kernel_for_head<ReadAhead<W>, Adapters>(args) : kernel_for_head<W, Adapters>(args);
}

// In dense_cuda.cu, float8_cuda.cu and so on.
Kernel dense_kernel(const CudaDecoderStep& args, bool ahead);
Kernel dense_lora_kernel(const CudaDecoderStep& args, bool ahead);  // bfloat16
Kernel float8_kernel(const CudaDecoderStep& args);
Kernel float8_blocks_kernel(const CudaDecoderStep& args);
Kernel int4_kernel(const CudaDecoderStep& args);
Kernel int4_shifts_kernel(const CudaDecoderStep& args);
Kernel int8_kernel(const CudaDecoderStep& args);
Kernel int8_shifts_kernel(const CudaDecoderStep& args);

}  // namespace quire::ops::cuda::step
