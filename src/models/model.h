#pragma once
// A language model, or a range of its layers, on one rank.
//
// Made by models/families.h with zero weights, filled through parameters()
// (loader/weight_loader.h), then run: forward() once a step, compute_logits() on its result where
// logits are wanted. Thread safety: one thread at a time, the rank's worker. All ranks of the group
// make the same calls in the same order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "core/buffer.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/kv_cache_view.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "layers/embedding.h"
#include "layers/forward_context.h"
#include "layers/linear.h"
#include "layers/lora_layers.h"
#include "layers/placement.h"
#include "loader/eagle_config.h"
#include "loader/model_config.h"
#include "loader/parameter.h"

namespace quire {

// Which part of a model a rank holds, and how.
struct ModelOptions {
  ModelConfig config;
  // Of the dense weights in memory: float32, bfloat16; on a GPU float16.
  DType dtype = DType::kFloat32;
  // Rounding of matrices that are dense in the checkpoint; with kFloat8, those stay dense that a
  // quantization_config leaves dense. Either kind of integers rounds the embedding and the output
  // layer to int8; float8 leaves them.
  WeightRounding rounding = WeightRounding::kNone;
  // Whether a checkpoint's scales of the KV cache are used: it is float8 e4m3.
  bool has_kv_scales = false;
  Device device;              // where they are
  int64_t max_model_len = 0;  // positions run up to max_model_len - 1
  int rank = 0;               // within the tensor-parallel group
  int size = 1;
  // Layers [first_layer, last_layer). The stage with layer 0 embeds, that with the last layer
  // applies the final norm and computes logits.
  int64_t first_layer = 0;
  int64_t last_layer = -1;  // -1: the number of layers
  // For the whole model: the number of layers of each stage; empty: one stage.
  std::vector<int64_t> stage_layers;
  // Whether the stage that embeds has the output layer's table, too, for a head that shares both.
  bool embeds_with_output_table = false;
  // Whether this model's steps may use the ranks' peer words (Communicator), as one model's may.
  bool has_peer_words = true;
  // Whether a step may be a kernel that needs all of the GPU's multiprocessors at a time.
  bool fills_gpu = true;
  // An EAGLE or EAGLE-3 head (models/eagle_head.h), whose layers are `config`; none: a model.
  std::optional<EagleConfig> eagle;
};

// Stage `stage` of a model that is cut according to its stage_layers.
inline ModelOptions stage_of_model(ModelOptions model, int stage) {
  check(static_cast<size_t>(stage) < std::max<size_t>(model.stage_layers.size(), 1),
        "a stage is one that the model is cut into");
  if (model.stage_layers.empty()) return model;
  const auto first = model.stage_layers.begin();
  model.first_layer = std::accumulate(first, first + stage, int64_t{0});
  model.last_layer = model.first_layer + first[stage];
  return model;
}

// What one stage hands to the next. Both [num_tokens, hidden_size].
struct IntermediateTensors {
  // Of the last stage: after the final norm. Of the others: this rank's part of a sum over the
  // ranks.
  Tensor hidden;
  Tensor residual;

  // Bytes of either on a GPU, where both lie in one piece of memory, each aligned to 16 bytes.
  static size_t bytes_each(DType dtype, int64_t num_tokens, int64_t hidden_size) {
    return align_up(static_cast<size_t>(num_tokens * hidden_size) * size_of(dtype), 16);
  }
  // In 2 * bytes_each() bytes from `at` on.
  static IntermediateTensors lying_at(std::byte* at, DType dtype, int64_t num_tokens,
                                      int64_t hidden_size) {
    return {.hidden = Tensor(at, dtype, {num_tokens, hidden_size}),
            .residual = Tensor(at + bytes_each(dtype, num_tokens, hidden_size), dtype,
                               {num_tokens, hidden_size})};
  }
};

// What each layer of this rank keeps for a token.
struct KvCacheShape {
  int64_t num_layers = 0;  // of this stage
  int num_kv_heads = 0;    // of this rank
  int head_dim = 0;
};

// One line of a memory plan.
struct MemoryItem {
  std::string name;
  size_t bytes = 0;
  std::set<std::string> formats;  // "bfloat16", "fp8 with scales"
};

// A model's tables with a row for each token; null where a rank has none.
struct VocabTables {
  const VocabTable* embedding = nullptr;
  const VocabTable* output = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;

  // The parameters under their names in a checkpoint. Pointers into the model.
  virtual ParameterMap parameters() = 0;
  // The layers that adapters may add to. Pointers into the model.
  virtual LoraSites lora_sites() const = 0;
  // All memory that the model has allocated, weights and tables, part by part.
  virtual std::vector<MemoryItem> memory() = 0;
  virtual KvCacheShape kv_cache_shape() const = 0;
  // The matrix products of a step of this rank, in order: those of every layer, and the logits'.
  virtual std::vector<MatrixProduct> products() const = 0;

  // Tells the model of the adapters that its steps on a GPU may have, before bind_cache(). They
  // outlive the model's steps.
  virtual void bind_adapters(const GpuLora&) {}
  // Tells the model where its keys and values are, before the first forward(): one view for each
  // layer of this stage, in order. `comm` is that of all later calls.
  virtual void bind_cache(Stream& stream, Communicator& comm,
                          std::span<const KvCacheView> kv_caches) = 0;

  // Runs this stage's layers and writes the batch's keys and values to the cache. `previous` is
  // given exactly where the stage doesn't start at layer 0; its tensors are then worked on in
  // place. What is returned is in the context's arena (or in `previous`), so the caller holds an
  // Arena::Scope around the step.
  virtual IntermediateTensors forward(ForwardContext& context,
                                      std::optional<IntermediateTensors> previous) = 0;

  // Logits of the rows batch.logits_rows of `hidden` (the last stage's): float32[num_logits,
  // vocab_size], on every rank, in the arena. Rows may be strided where the vocabulary isn't a
  // multiple of the number of ranks.
  virtual Tensor compute_logits(ForwardContext& context, const Tensor& hidden) = 0;

  // For a head that shares them. Pointers into the model.
  virtual VocabTables vocab_tables() const { return {}; }
};

}  // namespace quire
