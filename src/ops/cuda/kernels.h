#pragma once
// The kernels of the CUDA ops, as a table of functions.
//
// x.cc checks an op's arguments and calls these where the stream is a CUDA device's; the files
// x_cuda.cu hold them. They live in a library that is loaded at run time (core/device_library.h),
// so this header has no CUDA type in it and nothing but plain structs: the table is all that the
// two sides share.
//
// Every function queues its work on the stream and returns; pointers are to device memory and
// aligned to 16 bytes, row strides are multiples of 8 elements. `dtype` is that of activations and
// matrices alike: float32, bfloat16 or float16; sums are float32. Functions that allocate nothing
// and read no device memory from the host can be captured in a CUDA graph: all but those that say
// otherwise. A launch that fails throws Error. Thread safety: one thread at a time on a stream.
//
// The same arguments give the same bits again on the same kind of device: what is summed in which
// order never depends on timing. Which kernel runs, and so how sums are cut, may depend on the
// device and on the whole batch (its rows, its longest context, its number of sequences): a row's
// bits may differ beside other rows.
#include <cstdint>
#include <vector>

#include "base/ceil_div.h"
#include "core/dtype.h"
#include "ops/cuda/linear/algorithms.h"
#include "ops/float8_activations.h"
#include "ops/group_tiles.h"
#include "ops/no_token.h"
#include "ops/weight_format.h"

namespace quire {
class CudaStream;  // core/stream_cuda.h
}

namespace quire::ops {

// The largest values that the kernels take: elements of a head, tokens of a vocabulary, rows of
// logits in a step.
inline constexpr int kMaxHeadDim = 512;
inline constexpr int64_t kMaxVocabSize = int64_t{1} << 21;
inline constexpr int64_t kMaxStepLogitsRows = 65535;

// out[t] = table row (ids[t] - first_id), or zeros where that is outside [0, table_rows).
struct CudaEmbedding {
  DType dtype;
  const int32_t* ids;  // [num_tokens]
  int64_t num_tokens;
  const void* table;  // [table_rows, hidden]
  int64_t table_rows;
  int64_t hidden;
  int64_t first_id;
  void* out;  // [num_tokens, hidden]
};

// token_ids[i] = sampled[sources[i]] where sources[i] >= 0: tokens that the host does not know yet.
// kNoToken becomes 0: the step is computed before the host knows that its request
// has failed.
// Then cached_ids[slot_mapping[i]] = token_ids[i] where slot_mapping[i] >= 0.
struct CudaResolveTokens {
  int32_t* token_ids;  // [num_tokens]
  const int32_t* sources;
  const int32_t* sampled;
  const int64_t* slot_mapping;  // of the tokens' keys and values
  int32_t* cached_ids;          // [slots of the cache]; null: they are not kept
  int64_t num_tokens;
};

// out[i] = in[rows[i]].
struct CudaGatherRows {
  DType dtype;
  const void* in;  // [?, hidden], contiguous
  int64_t hidden;
  const int32_t* rows;  // [num_rows]
  int64_t num_rows;
  void* out;               // [num_rows, hidden]
  int64_t out_stride = 0;  // elements from row to row; 0: hidden
};

// out[slots[i]] = in[i] where slots[i] >= 0. No two rows have the same slot.
struct CudaScatterRows {
  DType dtype;
  const void* in;  // [num_rows, hidden], contiguous
  int64_t hidden;
  const int64_t* slots;  // [num_rows]
  int64_t num_rows;
  void* out;  // [?, hidden], contiguous
};

// out[r][i] = in[r][columns[i]], or -infinity where columns[i] < 0.
struct CudaGatherColumns {
  const float* in;  // rows `in_stride` elements apart
  int64_t in_stride;
  const int32_t* columns;  // [num_columns]
  int64_t num_columns;
  int64_t rows;
  float* out;  // [rows, num_columns], rows `out_stride` elements apart
  int64_t out_stride;
};

// residual null: out = norm(x). Else residual += x (rounded to dtype), out = norm(that sum).
// out may be x. All are [rows, n], contiguous but for `out`. With `rounded` out is what is rounded,
// as a product would do it (n is a multiple of kFloat8Block, dtype of 16 bits), and holds anything
// afterwards.
struct CudaRmsNorm {
  DType dtype;
  const void* x;
  void* residual;
  const float* weight;  // [n]
  float eps;
  int64_t rows;
  int64_t n;
  void* out;
  int64_t out_stride = 0;  // elements from row to row; 0: n
  Float8Activations rounded = {};
};

// out = silu(gate) * up.
struct CudaSiluAndMul {
  DType dtype;
  const void* gate_up;  // [rows, 2 * inner]: gate, then up
  int64_t rows;
  int64_t inner;
  void* out;  // [rows, inner]
};

// out = in * weight^T + bias; with silu_and_mul, CudaSiluAndMul of that. Kernels take dense weights
// of `dtype`, float8 where takes_float8() and integers where takes_integers(); ops/linear.cc lets
// no other through. With float8 each row of `in` is rounded to float8 on the way, with a scale for
// the whole row or, where the weight has blocks, for each kFloat8Block of its values. Integers'
// shifts (ops/group_tiles.h), their sums with the integers and, with many rows, these times their
// scales are rounded to `dtype`.
struct CudaLinear {
  DType dtype;
  const void* in;  // [rows, k], rows `in_stride` elements apart
  int64_t in_stride;
  WeightView weight;  // [n, k]
  int64_t rows;
  int64_t n;
  int64_t k;           // any; fast where it is a multiple of 8
  const float* bias;   // [n] or null
  void* out;           // [rows, n], or [rows, n / 2] with silu_and_mul
  int64_t out_stride;  // in elements of out_dtype
  DType out_dtype;     // dtype, or float32 (logits)
  bool silu_and_mul;   // n is even: gate in the first half of the outputs, up in the second
  // Of a float8 weight linear_scratch_bytes(...) bytes, of integers group_scratch_bytes(...).
  void* scratch = nullptr;
  // Of a float8 weight: the inputs rounded already, where linear_rounded_in() wants them. Then `in`
  // is not read.
  Float8Activations rounded_in = {};
  // Of a float8 weight with silu_and_mul: where the outputs, of dtype, are to be rounded for
  // another product; n / 2 is a multiple of kFloat8Block. Then `out` holds anything afterwards.
  Float8Activations rounded_out = {};
};

// Room for the rows as float8, and a float32 for each kFloat8Block inputs of a row, of whole tiles
// of rows.
inline constexpr int64_t kLinearScaleRows = 128;
inline constexpr int64_t linear_scratch_bytes(int64_t rows, int64_t k) {
  return round_up(rows * k, 256) +
         round_up(rows, kLinearScaleRows) * ceil_div(k, kFloat8Block) * int64_t{sizeof(float)};
}

// Whether linear multiplies by float8 weights of these sizes, on a GPU of compute capability 9.0.
inline constexpr bool takes_float8(DType dtype, int64_t n, int64_t k) {
  return (dtype == DType::kBFloat16 || dtype == DType::kFloat16) && n % 16 == 0 &&
         k % kFloat8Block == 0;
}

// Whether linear multiplies by integers of this format, on a GPU of compute capability 9.0.
inline constexpr bool takes_integers(DType dtype, const WeightFormat& format) {
  return (dtype == DType::kBFloat16 || dtype == DType::kFloat16) && has_group_tiles(format);
}

// Room for the rows in the order of a permutation, and behind them for the weight's numbers in 16
// bits where there are more than kMostGroupRows.
inline constexpr int64_t kMostGroupRows = 512;
inline constexpr int64_t group_order_bytes(int64_t rows, int64_t k, bool is_permuted) {
  return is_permuted ? round_up<int64_t>(rows * round_up<int64_t>(k, 8) * 2, 256) : 0;
}
inline constexpr int64_t group_scratch_bytes(int64_t rows, int64_t n, int64_t k, bool is_permuted) {
  return group_order_bytes(rows, k, is_permuted) + (rows > kMostGroupRows ? n * k * 2 : 0);
}

// One product by several of cuBLAS's algorithms, one after the other, each timed. Cannot be
// captured, because it waits for the device.
struct CudaLinearTrials {
  CudaLinear product;  // without silu_and_mul; k is a multiple of 8; its bias is not looked at
  const void* bias;    // [n] of out_dtype or null: what cuBLAS gets in the place of product.bias
  // The matrices that runs multiply by in turn: product.weight, and those that follow it at
  // distances of `weight_stride` elements. With more of them than the L2 cache holds they are read
  // from memory, as in a step of a model.
  int64_t num_weights;
  int64_t weight_stride;
  int max_algorithms;  // of the heuristics' list, from its beginning; >= 1
  int repeats;         // measurements of each, of many runs; >= 1
};

struct LinearTrial {
  LinearAlgorithm algorithm;
  double seconds;  // of one run: the median of the measurements
  double error;    // ||out - first|| / ||first|| over a sample of rows, where `first` is the first
                   // algorithm's; infinite where one of them is not finite
  bool repeats;    // a second run gave the same bits
};

// Bytes from one piece of device memory to another.
struct CudaCopy {
  void* to;
  const void* from;
  int64_t bytes;
  int repeats;  // >= 1
};

// One layer's paged cache: [num_blocks][num_kv_heads][block_size][head_dim] elements, once for keys
// and once for values.
struct CudaKvCache {
  DType dtype;  // that of the activations, or float8 (kFloat8E4M3, kFloat8E5M2)
  void* keys;
  void* values;
  int block_size;  // tokens; a multiple of 16 up to 256
  int num_kv_heads;
  int head_dim;  // a multiple of 8
};

// Of a float8 cache: [num_kv_heads] on the device; x is stored as x / scale. Null: all are 1.
struct CudaKvScales {
  const float* keys = nullptr;
  const float* values = nullptr;
};

// Per head: norm q and k, rotate both, write q back, store k and v at the token's slot.
struct CudaQkNormRopeCache {
  DType dtype;
  void* qkv;  // [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim], contiguous
  int num_heads;
  const float* q_norm;  // [head_dim] or null
  const float* k_norm;  // [head_dim] or null
  float eps;
  const float* cos_sin;  // [max_position, rotary_dim]: cosines, then sines
  int rotary_dim;        // even; element i is rotated with i + rotary_dim / 2
  int64_t num_tokens;
  const int32_t* positions;     // [num_tokens]
  const int64_t* slot_mapping;  // [num_tokens]; block * block_size + offset; -1: not stored
  CudaKvCache cache;
  CudaKvScales scales = {};
};

// Tokens of the context that one block of the decode kernel reads. A sequence's context is cut at
// multiples of it from position 0. With fewer, summing the parts up holds up the reading.
inline constexpr int kDecodeChunk = 512;
struct alignas(16) DecodeItem {
  int32_t seq;
  int32_t chunk;        // tokens from chunk * kDecodeChunk on
  int32_t first_row;    // of the scratch: query i of the sequence's q has row
                        // first_row + c * q + i for chunk c to itself
  int32_t context_len;  // of the sequence
};

// Queries of a decode sequence, at most.
inline constexpr int64_t kMaxDecodeQueries = 17;

// Causal grouped-query attention over the paged cache, which holds the step's own keys already.
// Sequences [0, num_decode_seqs) have one query each, at rows [0, num_decode_seqs), or where
// max_decode_queries says so several, as query_start says, and are cut into chunks; the others have
// any number of queries and are read in tiles. Of a decode sequence the step writes nothing but the
// keys and values of its queries' tokens, so a kernel may read the rest before qk_norm_rope_cache
// has ended.
struct CudaPagedAttention {
  DType dtype;
  const void* q;  // [num_tokens, num_heads * head_dim], rows `q_stride` elements apart
  int64_t q_stride;
  void* out;  // [num_tokens, num_heads * head_dim], contiguous
  int num_heads;
  float scale;
  int64_t sliding_window;  // 0: none; else a query at p sees (p - sliding_window, p]
  int64_t num_tokens;
  int64_t num_seqs;
  int64_t max_query_len;
  int64_t max_context_len;
  const int32_t* query_start;   // [num_seqs + 1]; not read where all have one query
  const int32_t* context_lens;  // [num_seqs]; the last query of a sequence is at context_len - 1.
                                // 0 for a padding sequence, which may have a row of `out` that
                                // nobody reads
  const int32_t* block_tables;  // [num_seqs, table_width]
  int64_t table_width;
  int64_t num_decode_seqs;
  // The chunks of the decode sequences, in any order; larger ones first is fastest.
  // [max_decode_items]: all may be read, and the first *num_decode_items count. That number is read
  // on the device, so that a graph can be replayed with another one.
  const DecodeItem* decode_items;
  const int32_t* num_decode_items;
  int64_t max_decode_items;
  CudaKvCache cache;
  // cuda paged_attention_scratch_bytes(...) bytes. Counters in it are zero before the first use and
  // zero again after each.
  void* scratch;
  int64_t max_decode_rows = 0;     // of the scratch
  int64_t max_decode_queries = 1;  // of a decode sequence, up to kMaxDecodeQueries
  CudaKvScales scales = {};
};

// An addition to a row's logit of a token.
struct alignas(8) TokenBias {
  int32_t id;  // in [0, vocab)
  float bias;  // -infinity: never sampled
};

// Biases and penalties of ops/sampling.h, in its order and to its bits. A row's history is the
// first tokens of a sequence, whose keys and values are in the cache; the step's own may be among
// them. Rows without biases and with neutral penalties stay as they are.
struct CudaAdjustLogits {
  float* logits;  // [rows, vocab], rows `stride` apart
  int64_t stride;
  int64_t rows;
  int64_t vocab;
  const float* repetition_penalty;   // [rows]; 1: none
  const float* presence_penalty;     // [rows]; 0: none
  const float* frequency_penalty;    // [rows]; 0: none
  const int32_t* row_seqs;           // [rows]: each one's sequence
  const int32_t* num_prompt_tokens;  // [rows]
  const int32_t* history_lens;       // [rows]: tokens
  const int32_t* block_tables;       // [seqs, table_width]
  int64_t table_width;
  int32_t block_size;
  const int32_t* cached_ids;  // CudaResolveTokens'
  // Row r's biases are those from bias_start[r] up to bias_start[r + 1]. An id comes once in a row,
  // and any number of times more with -infinity.
  const int32_t* bias_start;  // [rows + 1]
  const TokenBias* biases;    // [bias_start[rows]]; not read where there are none
};

// One row of logits to one token id, as ops/sampling.h defines it once CudaAdjustLogits is done.
struct CudaSample {
  const float* logits;  // [rows, vocab], rows `stride` apart; unchanged
  int64_t stride;
  int64_t rows;
  int64_t vocab;
  const float* temperature;    // [rows]; 0: arg max
  const int32_t* top_k;        // [rows]; 0: all
  const float* top_p;          // [rows]
  const float* min_p;          // [rows]
  const uint32_t* noise_keys;  // [rows][2]: NoiseKey's low, high
  int32_t* out;                // [rows]; kNoToken where a row has no distribution
  void* scratch;               // sample_scratch_bytes(rows, vocab) bytes
  // [rows]: the index in `masks` of each row's mask; -1: every token may come. Null: so in all
  // rows.
  const int32_t* mask_rows = nullptr;
  // [..., ceil(vocab / 32)]: bit t % 32 of word t / 32 is set if token t may come.
  const uint32_t* masks = nullptr;
  // [rows]: ids sampled before. One that its row's mask allows is kept as the result; so is any in
  // a row without a mask, and kNoToken. Null: nothing was sampled before. May be `out`.
  const int32_t* kept_ids = nullptr;
};

// Natural logarithms of raw logits' probabilities: of one given token a row, with its rank, and of
// the num_top most likely tokens, in order. Of equally likely tokens the lower id comes first; NaN
// counts as -infinity.
struct CudaLogprobs {
  const float* logits;  // [rows, vocab], rows `stride` apart; unchanged
  int64_t stride;
  int64_t rows;
  int64_t vocab;
  const int32_t* token_ids;  // [rows], in [0, vocab), or kNoToken: then what is found of it is void
  int32_t num_top;           // 0 to 512
  float* token_logprobs;     // [rows]
  int32_t* token_ranks;      // [rows]; 1: the most likely
  int32_t* top_ids;          // [rows, num_top]; -1 where a row has fewer tokens above -infinity
  float* top_logprobs;       // [rows, num_top]; -infinity there
  void* scratch;             // sample_scratch_bytes(rows, vocab) bytes
};

// Of a whole decode step: ops/cuda/decoder_step_kernels.h.
struct CudaDecoderStep;

// Of adapters: ops/cuda/lora_kernels.h, and the last two ops/cuda/lora_product_kernels.h.
struct CudaLoraShrink;
struct CudaLoraLookUp;
struct CudaLoraExpand;
struct CudaLoraNorm;
struct CudaLoraBegin;
struct CudaLoraLinear;

struct CudaKernels {
  void (*embedding)(CudaStream&, const CudaEmbedding&);
  void (*resolve_tokens)(CudaStream&, const CudaResolveTokens&);
  void (*gather_rows)(CudaStream&, const CudaGatherRows&);
  void (*scatter_rows)(CudaStream&, const CudaScatterRows&);
  void (*gather_columns)(CudaStream&, const CudaGatherColumns&);
  void (*adjust_logits)(CudaStream&, const CudaAdjustLogits&);
  void (*rms_norm)(CudaStream&, const CudaRmsNorm&);
  void (*silu_and_mul)(CudaStream&, const CudaSiluAndMul&);
  void (*linear)(CudaStream&, const CudaLinear&);
  // How many rows of a product of this shape linear hands to cuBLAS at once (in its first piece
  // where there are several); 0 where one of quire's kernels takes it, and for float8 weights.
  // Pointers are not used.
  int64_t (*linear_cublas_rows)(CudaStream&, const CudaLinear&);
  // Where in its scratch a product of this shape wants its inputs rounded (CudaLinear::rounded_in).
  // No data: it does not take them rounded. Beside `scratch`, pointers are not followed; the bias's
  // says whether there is one.
  Float8Activations (*linear_rounded_in)(CudaStream&, const CudaLinear&);
  // In the order of cuBLAS's heuristics; the first is their choice. Leaves out algorithms that a
  // LinearAlgorithm cannot describe, or that do not sum in float32.
  std::vector<LinearTrial> (*try_linear_algorithms)(CudaStream&, const CudaLinearTrials&);
  // Seconds of one copy, the median; waits for the device.
  double (*time_copy)(CudaStream&, const CudaCopy&);
  void (*qk_norm_rope_cache)(CudaStream&, const CudaQkNormRopeCache&);
  void (*paged_attention)(CudaStream&, const CudaPagedAttention&);
  void (*sample)(CudaStream&, const CudaSample&);
  void (*logprobs)(CudaStream&, const CudaLogprobs&);
  void (*lora_shrink)(CudaStream&, const CudaLoraShrink&);
  void (*lora_look_up)(CudaStream&, const CudaLoraLookUp&);
  void (*lora_expand)(CudaStream&, const CudaLoraExpand&);
  void (*lora_norm)(CudaStream&, const CudaLoraNorm&);
  void (*lora_begin)(CudaStream&, const CudaLoraBegin&);
  void (*lora_linear)(CudaStream&, const CudaLoraLinear&);
  // Whether lora_linear takes such a product on this device.
  bool (*lora_linear_takes)(CudaStream&, const CudaLoraLinear&);
  void (*decoder_step)(CudaStream&, const CudaDecoderStep&);
  // Whether decoder_step takes a model of these sizes on this device; rows are not used. Loads the
  // kernel, because loading it later might wait for a kernel that waits for this rank.
  bool (*supports_decoder_step)(CudaStream&, const CudaDecoderStep&);
  // Bytes of scratch.
  int64_t (*paged_attention_scratch_bytes)(int64_t max_decode_rows, int64_t max_num_seqs,
                                           int64_t max_decode_queries, int num_heads,
                                           int num_kv_heads, int head_dim);
  int64_t (*sample_scratch_bytes)(int64_t rows, int64_t vocab);
  int64_t (*decoder_step_scratch_bytes)(const CudaDecoderStep& sizes);
};

// Each in the file of its name.
namespace cuda {
void embedding(CudaStream& stream, const CudaEmbedding& args);
void resolve_tokens(CudaStream& stream, const CudaResolveTokens& args);
void adjust_logits(CudaStream& stream, const CudaAdjustLogits& args);
void gather_rows(CudaStream& stream, const CudaGatherRows& args);
void scatter_rows(CudaStream& stream, const CudaScatterRows& args);
void gather_columns(CudaStream& stream, const CudaGatherColumns& args);
void rms_norm(CudaStream& stream, const CudaRmsNorm& args);
void silu_and_mul(CudaStream& stream, const CudaSiluAndMul& args);
void linear(CudaStream& stream, const CudaLinear& args);
int64_t linear_cublas_rows(CudaStream& stream, const CudaLinear& args);
Float8Activations linear_rounded_in(CudaStream& stream, const CudaLinear& args);
std::vector<LinearTrial> try_linear_algorithms(CudaStream& stream, const CudaLinearTrials& args);
double time_copy(CudaStream& stream, const CudaCopy& args);
void qk_norm_rope_cache(CudaStream& stream, const CudaQkNormRopeCache& args);
void paged_attention(CudaStream& stream, const CudaPagedAttention& args);
void sample(CudaStream& stream, const CudaSample& args);
void logprobs(CudaStream& stream, const CudaLogprobs& args);
void lora_shrink(CudaStream& stream, const CudaLoraShrink& args);
void lora_look_up(CudaStream& stream, const CudaLoraLookUp& args);
void lora_expand(CudaStream& stream, const CudaLoraExpand& args);
void lora_norm(CudaStream& stream, const CudaLoraNorm& args);
void lora_begin(CudaStream& stream, const CudaLoraBegin& args);
void lora_linear(CudaStream& stream, const CudaLoraLinear& args);
bool lora_linear_takes(CudaStream& stream, const CudaLoraLinear& args);
void decoder_step(CudaStream& stream, const CudaDecoderStep& args);
bool supports_decoder_step(CudaStream& stream, const CudaDecoderStep& args);
int64_t paged_attention_scratch_bytes(int64_t max_decode_rows, int64_t max_num_seqs,
                                      int64_t max_decode_queries, int num_heads, int num_kv_heads,
                                      int head_dim);
int64_t sample_scratch_bytes(int64_t rows, int64_t vocab);
int64_t decoder_step_scratch_bytes(const CudaDecoderStep& sizes);
}  // namespace cuda

}  // namespace quire::ops
