#include "simulated_gpu/kernels.h"

#include "ops/cuda/decoder_step_kernels.h"
#include "ops/cuda/lora_kernels.h"
#include "ops/cuda/lora_product_kernels.h"
#include "simulated_gpu/elements.h"
#include "simulated_gpu/stream.h"

namespace quire::simulated {
namespace {

// A kernel that takes any dtype of the activations that the simulated GPU has.
template <auto kKernel, typename Args>
void queue(CudaStream& stream, std::string_view name, const Args& args) {
  check_dtype(name, args.dtype);
  stream.queue(name, [args] { kKernel(args); });
}

constexpr ops::CudaKernels kKernels = {
    .embedding =
        [](CudaStream& stream, const ops::CudaEmbedding& args) {
          queue<embedding>(stream, "embedding", args);
        },
    .resolve_tokens =
        [](CudaStream& stream, const ops::CudaResolveTokens& args) {
          stream.queue("resolve_tokens", [args] { resolve_tokens(args); });
        },
    .gather_rows =
        [](CudaStream& stream, const ops::CudaGatherRows& args) {
          queue<gather_rows>(stream, "gather_rows", args);
        },
    .scatter_rows =
        [](CudaStream& stream, const ops::CudaScatterRows& args) {
          queue<scatter_rows>(stream, "scatter_rows", args);
        },
    .gather_columns =
        [](CudaStream& stream, const ops::CudaGatherColumns& args) {
          stream.queue("gather_columns", [args] { gather_columns(args); });
        },
    .adjust_logits =
        [](CudaStream& stream, const ops::CudaAdjustLogits& args) {
          stream.queue("adjust_logits", [args] { adjust_logits(args); });
        },
    .rms_norm = [](CudaStream& stream,
                   const ops::CudaRmsNorm& args) { queue<rms_norm>(stream, "rms_norm", args); },
    .silu_and_mul =
        [](CudaStream& stream, const ops::CudaSiluAndMul& args) {
          queue<silu_and_mul>(stream, "silu_and_mul", args);
        },
    .linear =
        [](CudaStream& stream, const ops::CudaLinear& args) {
          queue<linear>(stream, is_linear_by_table(stream, args) ? "linear_by_table" : "linear",
                        args);
        },
    .linear_cublas_rows = [](CudaStream&,
                             const ops::CudaLinear& args) { return linear_cublas_rows(args); },
    .linear_rounded_in = [](CudaStream&,
                            const ops::CudaLinear& args) { return linear_rounded_in(args); },
    .try_linear_algorithms =
        [](CudaStream& stream, const ops::CudaLinearTrials& args) {
          return try_linear_algorithms(stream, args);
        },
    .time_copy = [](CudaStream& stream,
                    const ops::CudaCopy& args) { return time_copy(stream, args); },
    .qk_norm_rope_cache =
        [](CudaStream& stream, const ops::CudaQkNormRopeCache& args) {
          queue<qk_norm_rope_cache>(stream, "qk_norm_rope_cache", args);
        },
    .paged_attention =
        [](CudaStream& stream, const ops::CudaPagedAttention& args) {
          queue<paged_attention>(stream, "paged_attention", args);
        },
    .sample = [](CudaStream& stream,
                 const ops::CudaSample& args) { stream.queue("sample", [args] { sample(args); }); },
    .logprobs =
        [](CudaStream& stream, const ops::CudaLogprobs& args) {
          stream.queue("logprobs", [args] { logprobs(args); });
        },
    .lora_shrink =
        [](CudaStream& stream, const ops::CudaLoraShrink& args) {
          queue<lora_shrink>(stream, "lora_shrink", args);
        },
    .lora_look_up =
        [](CudaStream& stream, const ops::CudaLoraLookUp& args) {
          queue<lora_look_up>(stream, "lora_look_up", args);
        },
    .lora_expand =
        [](CudaStream& stream, const ops::CudaLoraExpand& args) {
          queue<lora_expand>(stream, "lora_expand", args);
        },
    .lora_norm = [](CudaStream& stream,
                    const ops::CudaLoraNorm& args) { queue<lora_norm>(stream, "lora_norm", args); },
    .lora_begin =
        [](CudaStream& stream, const ops::CudaLoraBegin& args) {
          stream.queue("lora_begin", [args] { lora_begin(args); });
        },
    .lora_linear =
        [](CudaStream& stream, const ops::CudaLoraLinear& args) {
          check_dtype("lora_linear", args.product.dtype);
          stream.queue("lora_linear", [args] { lora_linear(args); });
        },
    .lora_linear_takes = [](CudaStream&,
                            const ops::CudaLoraLinear& args) { return takes_lora_linear(args); },
    .decoder_step =
        [](CudaStream& stream, const ops::CudaDecoderStep& args) {
          queue<decoder_step>(stream, "decoder_step", args);
        },
    .supports_decoder_step =
        [](CudaStream& stream, const ops::CudaDecoderStep& args) {
          // A word more than the elements counts the sums.
          const PeerWords& peers = args.peers;
          return stream.gpu().has_decoder_step() &&
                 (peers.size == 1 ||
                  peers.count > ops::decoder_step_peer_words(args.hidden, peers.size));
        },
    .paged_attention_scratch_bytes = [](int64_t, int64_t, int64_t, int, int,
                                        int) { return int64_t{0}; },
    .sample_scratch_bytes = [](int64_t, int64_t) { return int64_t{0}; },
    .decoder_step_scratch_bytes = [](const ops::CudaDecoderStep&) { return int64_t{0}; },
};

}  // namespace

const ops::CudaKernels& kernels() {
  return kKernels;
}

}  // namespace quire::simulated
