#pragma once
// What the kernel of a whole decode step takes: ops/cuda/kernels.h says what holds for all kernels.
#include <cstdint>

#include "core/dtype.h"
#include "core/peer_words.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"
#include "ops/weight_format.h"

namespace quire::ops {

// One layer of CudaDecoderStep. Lives in device memory. Matrices are data of a WeightView, with
// scales where they are float8, else null; norm weights and biases are float32; biases and q_norm,
// k_norm are null where there are none.
struct CudaDecoderLayer {
  const float* input_norm;
  const void* qkv_weight;
  const float* qkv_scales;
  const float* qkv_bias;
  const float* q_norm;
  const float* k_norm;
  const void* o_weight;
  const float* o_scales;
  const float* o_bias;
  const float* post_norm;
  const void* gate_up_weight;
  const float* gate_up_scales;
  const float* gate_up_bias;
  const void* down_weight;
  const float* down_scales;
  const float* down_bias;
  void* keys;
  void* values;
  int64_t sliding_window;
};

// Rows that decoder_step takes at most.
inline constexpr int kMaxDecoderStepRows = 8;
inline constexpr int kMaxDecoderStepTaps = 8;

// The inputs of some layers, rounded to the activations' type, which a step hands out beside its
// result.
struct CudaDecoderTaps {
  int count = 0;                         // 0: none
  int layers[kMaxDecoderStepTaps] = {};  // of the step's, ascending
  void* out = nullptr;                   // [rows, count * hidden], layer by layer
};

// Matrices of a layer that adapters add to, in the order of their products.
enum DecoderMatrix { kQkvMatrix, kOutputMatrix, kGateUpMatrix, kDownMatrix, kNumDecoderMatrices };
// Ranks of a part that an adapter has at most.
inline constexpr int kMaxDecoderStepRank = 64;

// Adapters of a step's rows (ops/cuda/lora_kernels.h). A slot has CudaLoraLayers of the layers'
// matrices: those of qkv have the parts q, k and v, those of gate and up these two.
struct CudaDecoderLora {
  CudaLoraRows rows = {};                // max_items: at most the rows; 0: none has an adapter
  int max_rank = 0;                      // of a part, in the slots: a multiple of kLoraRankStep
  const CudaLoraLayer* table = nullptr;  // of slot 0
  int64_t slot_stride = 0;               // from one slot's to the next one's
  // [num_layers][kNumDecoderMatrices], device memory: where in a slot's table a matrix is.
  const int32_t* places = nullptr;
};

// How the blocks of a step with dense weights read each other's activations, as its sizes ask for.
// The results have the same bits.
enum class DecoderStepReads : int8_t { kBySizes, kRowByRow, kAhead };

// A decode step of a few sequences in one persistent kernel: embedding, all layers, final norm
// (models/decoder.h); or a stage's part of it. A sequence has one row, or several, each of which
// sees those before it. Each of several ranks has its shards of weights and heads, and they take
// sums over the ranks through `peers`, in rank order in float32; only one rank adds a bias to such
// a sum. The ranks of a group run the same steps in the same order.
struct CudaDecoderStep {
  DType dtype;                 // of activations, the embedding and dense weights
  WeightFormat weight_format;  // of the layers' matrices
  int64_t rows;                // tokens: 1 to kMaxDecoderStepRows
  int64_t hidden;
  int64_t inner;
  int num_heads;
  int num_kv_heads;
  int head_dim;
  float eps;
  float scale;
  const float* cos_sin;
  int rotary_dim;
  const CudaDecoderLayer* layers;  // [num_layers], device memory
  int num_layers;
  const float* final_norm;   // null: another stage goes on
  const void* embedding;     // [vocab, hidden]; without token_ids the state of the stage before
  const int32_t* token_ids;  // null: another stage has begun (ops/decoder_step.h)
  const int32_t* positions;
  const int64_t* slot_mapping;
  // Null: each sequence has one row. Else [num_seqs + 1], as ForwardBatch has it; rows behind the
  // last sequence's are padding.
  const int32_t* query_start;
  int64_t num_seqs;
  const int32_t* context_lens;  // [num_seqs]
  const int32_t* block_tables;  // [num_seqs, table_width]
  int64_t table_width;
  CudaKvCache cache;  // keys and values are the layers'
  void* out;  // [rows, hidden]: the normed hidden state; without final_norm the state; may be that
  void* scratch;  // decoder_step_scratch_bytes(...) bytes, zero before the first use
  // With more than one rank: at least decoder_step_peer_words(...), used only by this model's
  // steps.
  PeerWords peers = {};
  CudaDecoderTaps taps = {};
  CudaDecoderLora lora = {};
  DecoderStepReads reads = DecoderStepReads::kBySizes;  // another: for tests
};

// Words for each half of a layer, each rank and each row.
inline int64_t decoder_step_peer_words(int64_t hidden, int size) {
  return int64_t{2} * size * kMaxDecoderStepRows * hidden;
}

}  // namespace quire::ops
