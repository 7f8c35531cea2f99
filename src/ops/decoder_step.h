#pragma once
// A whole decode step of a decoder for a few sequences in one GPU kernel: embedding, all layers,
// final norm. A sequence has one token, or a few that are verified. Up to rounding, the result is
// the same as from the layers' ops one after the other.
//
// Or a pipeline stage's part of it. A stage leaves to the next a state [2, rows, hidden] of the
// activations' type: IntermediateTensors' hidden, then residual (models/model.h). The kernel keeps
// the residual in float32. What rounding it takes away is the state's hidden, of rank 0; of other
// ranks that is zero. So the next stage goes on with nearly the same numbers, and it may do so
// without the kernel, or begin with it where the stage before has none.
//
// Thread safety: one thread at a time on a stream.
#include <cstdint>
#include <optional>
#include <span>

#include "core/buffer.h"
#include "core/forward_batch.h"
#include "core/kv_cache_view.h"
#include "core/peer_words.h"
#include "core/stream.h"
#include "ops/cuda/decoder_step_kernels.h"
#include "ops/lora_slots.h"
#include "ops/weight.h"

namespace quire::ops {

// One layer's weights; undefined or null where the layer has none.
struct DecoderStepLayer {
  Tensor input_norm;  // float32, as all norms and biases
  const Weight* qkv = nullptr;
  Tensor qkv_bias;
  Tensor q_norm;
  Tensor k_norm;
  const Weight* o = nullptr;
  Tensor o_bias;
  Tensor post_norm;
  const Weight* gate_up = nullptr;
  Tensor gate_up_bias;
  const Weight* down = nullptr;
  Tensor down_bias;
  int64_t sliding_window = 0;
  // By DecoderMatrix; null where no adapters are served.
  const LoraSlotLayer* slots[kNumDecoderMatrices] = {};
};

struct DecoderStepModel {
  DType dtype = DType::kBFloat16;  // of activations
  int num_heads = 0;
  float eps = 1e-6f;
  float scale = 1;
  Tensor cos_sin;
  const Weight* embedding = nullptr;  // null: another stage begins
  Tensor final_norm;                  // undefined: another stage goes on
  std::span<const DecoderStepLayer> layers;
  std::span<const KvCacheView> caches;  // of the layers, in order
  PeerWords peers = {};                 // of the group: the weights are this rank's shards
};

// What enters some layers is handed out beside the result.
struct DecoderStepTaps {
  std::span<const int64_t> layers;  // of the step's, ascending, at most kMaxDecoderStepTaps
  Tensor out;                       // [num_tokens, layers * hidden], layer by layer
};

class DecoderStep {
 public:
  // Rows of a step with drafts, at most.
  static constexpr int64_t kMostVerifiedRows = 5;

  // The most device memory, in bytes, of an object for a model of `num_layers` layers.
  static size_t bytes(int64_t num_layers);

  // Whether the kernel reads weights of these formats: an embedding of the activations' type, and
  // layers of this type or all of the same float8 or, on one rank, integers, whose inputs are in
  // their order. There is a layer.
  static bool takes_weights(const DecoderStepModel& model);
  // Whether the kernel may be given adapters in the slots of the model's layers: on one of several
  // ranks it may not, and a part of a slot has up to kMaxDecoderStepRank ranks.
  static bool takes_slots(const DecoderStepModel& model);
  // Nothing where takes_weights() is false, `stream` is the CPU's, or it has no such kernel for
  // this model. Weights and caches must outlive the object.
  static std::optional<DecoderStep> make(Stream& stream, const DecoderStepModel& model);

  // Whether the kernel takes this batch: few tokens, all of them decoded or verified. The second is
  // the same for a model of this hidden size with layers of these weights, shared by so many ranks.
  bool takes(const ForwardBatch& batch) const {
    return takes(batch, hidden_, weights_, model_.peers.size);
  }
  static bool takes(const ForwardBatch& batch, int64_t hidden, const WeightFormat& weights,
                    int num_ranks);
  // Whether run() may be given adapters: their slots are such, and the kernel has a form for them.
  bool takes_adapters() const { return slot_table_ != nullptr; }
  // `in`: of a model with an embedding [num_tokens, hidden], the tokens' embeddings, where each
  // rank has only a part of the table, and else undefined. Of one without it the state [2,
  // num_tokens, hidden], whose hidden is already the sum over the ranks. `out`: of a model with a
  // final norm [num_tokens, hidden], the normed hidden state of each token, else a state; it may be
  // `in`. `adapters`: of the batch's rows, in the layers' slots; null: none has one.
  void run(Stream& stream, const ForwardBatch& batch, const Tensor& in, const Tensor& out,
           const DecoderStepTaps& taps = {}, const CudaLoraRows* adapters = nullptr) const;

 private:
  DecoderStep() = default;

  CudaDecoderStep arguments(const ForwardBatch& batch, const Tensor& out) const;
  void keep_places(const DecoderStepModel& model, const Device& device);

  Buffer layers_;  // CudaDecoderLayer[num_layers]
  Buffer scratch_;
  Buffer slot_places_;      // CudaDecoderLora::places, where it takes adapters
  Buffer row_numbers_;      // int32[kMaxDecoderStepRows]: 0, 1, ...
  DecoderStepModel model_;  // its spans are not looked at after make()
  KvCacheView cache_;       // of layer 0
  WeightFormat weights_;    // of the layers' matrices
  int64_t hidden_ = 0;
  int64_t inner_ = 0;
  int num_layers_ = 0;
  const CudaLoraLayer* slot_table_ = nullptr;
  int64_t slot_stride_ = 0;
  int slot_rank_ = 0;
};

}  // namespace quire::ops
