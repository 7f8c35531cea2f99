// Biases and penalties, before a row of logits is sampled. ops/sampling.h has the contract.
//
// A row's penalties take each token of its history once, however often it came. So a block has a
// piece of one row, counts the history's tokens that fall into it in shared memory, and then goes
// over its counters: nothing is sorted, and no logit is penalised twice. Every block of a row reads
// its whole history, 4 bytes a token, mostly from the L2 cache.
#include "base/ceil_div.h"
#include "core/launch.cuh"
#include "ops/cuda/kernels.h"
#include "ops/cuda/sampling/sampling.cuh"

namespace quire::ops::cuda {
namespace {

constexpr int kThreads = 256;
// Logits of a block's piece: 32 KiB of counters, so that several blocks share a multiprocessor.
constexpr int32_t kPiece = 8192;

// In a counter: it came, in prompt or output. The other bits say how often in the output.
constexpr uint32_t kCame = 1u << 31;

struct Penalties {
  __device__ Penalties(const CudaAdjustLogits& args, int64_t row)
      : repetition(args.repetition_penalty[row]),
        presence(args.presence_penalty[row]),
        frequency(args.frequency_penalty[row]) {}

  __device__ bool has_repetition() const { return repetition != 1.0f; }
  __device__ bool any() const { return has_repetition() || presence != 0.0f || frequency != 0.0f; }
  // Rounded after each operation, as the CPU's code does.
  __device__ float apply(float logit, uint32_t counter) const {
    if (has_repetition()) {
      logit = logit > 0.0f ? __fdiv_rn(logit, repetition) : __fmul_rn(logit, repetition);
    }
    const uint32_t times = counter & ~kCame;
    if (times == 0) return logit;
    const float by_count = __fmul_rn(frequency, static_cast<float>(times));
    return __fsub_rn(__fsub_rn(logit, by_count), presence);
  }

  float repetition;
  float presence;
  float frequency;
};

// Calls visit(bias, logit) for each of the row's biases that falls into the piece.
template <typename Visit>
__device__ void for_each_bias(const CudaAdjustLogits& args, int64_t row, float* piece,
                              int32_t first_id, int32_t size, const Visit& visit) {
  const int32_t end = args.bias_start[row + 1];
  for (int32_t i = args.bias_start[row] + static_cast<int32_t>(threadIdx.x); i < end;
       i += kThreads) {
    const TokenBias bias = args.biases[i];
    const int32_t at = bias.id - first_id;
    if (at >= 0 && at < size) visit(bias.bias, piece[at]);
  }
}

// Masks come last, whatever else their ids were given, and may come oftener than once.
__device__ void add_biases(const CudaAdjustLogits& args, int64_t row, float* piece,
                           int32_t first_id, int32_t size) {
  for_each_bias(args, row, piece, first_id, size, [](float bias, float& logit) {
    if (bias != kMinusInfinity) logit = __fadd_rn(logit, bias);
  });
  __syncthreads();
  for_each_bias(args, row, piece, first_id, size, [](float bias, float& logit) {
    if (bias == kMinusInfinity) logit = kMinusInfinity;
  });
}

__device__ void count_history(const CudaAdjustLogits& args, int64_t row, int32_t first_token,
                              int32_t first_id, int32_t size, uint32_t* counters) {
  const int64_t seq = args.row_seqs[row];
  const int32_t* blocks = args.block_tables + seq * args.table_width;
  const int32_t num_tokens = args.history_lens[row];
  const int32_t num_prompt_tokens = args.num_prompt_tokens[row];
  for (int32_t t = first_token + static_cast<int32_t>(threadIdx.x); t < num_tokens; t += kThreads) {
    const int64_t block = blocks[t / args.block_size];
    const int32_t at = args.cached_ids[block * args.block_size + t % args.block_size] - first_id;
    if (at < 0 || at >= size) continue;
    if (t >= num_prompt_tokens) {
      atomicAdd(&counters[at], 1u);
    } else {
      atomicOr(&counters[at], kCame);
    }
  }
}

// Block (piece, row).
__global__ void __launch_bounds__(kThreads) adjust_kernel(CudaAdjustLogits args) {
  __shared__ uint32_t counters[kPiece];
  release_next();
  wait_for_previous();
  const int64_t row = blockIdx.y;
  const Penalties penalties(args, row);
  const bool has_biases = args.bias_start[row] < args.bias_start[row + 1];
  if (!has_biases && !penalties.any()) return;

  const int32_t first_id = static_cast<int32_t>(blockIdx.x) * kPiece;
  const int32_t size = min(kPiece, static_cast<int32_t>(args.vocab) - first_id);
  float* piece = args.logits + row * args.stride + first_id;
  if (has_biases) add_biases(args, row, piece, first_id, size);
  if (!penalties.any()) return;

  const auto thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t i = thread; i < size; i += kThreads) counters[i] = 0;
  __syncthreads();
  const int32_t first_token = penalties.has_repetition() ? 0 : args.num_prompt_tokens[row];
  count_history(args, row, first_token, first_id, size, counters);
  __syncthreads();
  for (int32_t i = thread; i < size; i += kThreads) {
    if (counters[i] != 0) piece[i] = penalties.apply(piece[i], counters[i]);
  }
}

}  // namespace

void adjust_logits(CudaStream& stream, const CudaAdjustLogits& args) {
  if (args.rows == 0) return;
  check_row_sizes(args.rows, args.vocab);
  const auto pieces = static_cast<unsigned>(ceil_div(args.vocab, kPiece));
  launch(stream, adjust_kernel, dim3(pieces, static_cast<unsigned>(args.rows)), dim3(kThreads), 0,
         args);
}

}  // namespace quire::ops::cuda
