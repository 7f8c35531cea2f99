#pragma once
// What each kernel computes, as plain loops: ops/cuda/kernels.h has the contracts. Sums are
// float32, in order.
//
// Thread safety: pure functions of the memory that their arguments point to.
#include <vector>

#include "ops/cuda/kernels.h"

namespace quire::simulated {

void embedding(const ops::CudaEmbedding& args);
void resolve_tokens(const ops::CudaResolveTokens& args);
void adjust_logits(const ops::CudaAdjustLogits& args);
void gather_rows(const ops::CudaGatherRows& args);
void scatter_rows(const ops::CudaScatterRows& args);
void gather_columns(const ops::CudaGatherColumns& args);
void rms_norm(const ops::CudaRmsNorm& args);
void silu_and_mul(const ops::CudaSiluAndMul& args);
void linear(const ops::CudaLinear& args);
int64_t linear_cublas_rows(const ops::CudaLinear& args);
ops::Float8Activations linear_rounded_in(const ops::CudaLinear& args);
// Whether the stream's table names an algorithm for the product. It is the same loop either way.
bool is_linear_by_table(const CudaStream& stream, const ops::CudaLinear& args);
void qk_norm_rope_cache(const ops::CudaQkNormRopeCache& args);
void paged_attention(const ops::CudaPagedAttention& args);
void sample(const ops::CudaSample& args);
void logprobs(const ops::CudaLogprobs& args);
void lora_shrink(const ops::CudaLoraShrink& args);
void lora_look_up(const ops::CudaLoraLookUp& args);
void lora_expand(const ops::CudaLoraExpand& args);
void lora_norm(const ops::CudaLoraNorm& args);
void lora_begin(const ops::CudaLoraBegin& args);
void lora_linear(const ops::CudaLoraLinear& args);
void decoder_step(const ops::CudaDecoderStep& args);

// Nothing is computed here: the times are made up, of a GPU that does 10 TFLOP/s and 1 TB/s, and
// the same each time.
std::vector<ops::LinearTrial> try_linear_algorithms(CudaStream& stream,
                                                    const ops::CudaLinearTrials& args);
double time_copy(CudaStream& stream, const ops::CudaCopy& args);

// The functions that queue them.
const ops::CudaKernels& kernels();

}  // namespace quire::simulated
