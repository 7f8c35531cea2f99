#pragma once
// The decoder that most open language models share: embedding, layers of (norm, attention, norm,
// gated MLP) with residuals, final norm, output layer. A family (models/families.cc) says with
// DecoderOptions what is particular to it.
//
// Parameter names are Hugging Face's: model.embed_tokens, model.layers.N.self_attn.q_proj, ...,
// model.norm, lm_head. Thread safety: as Model says.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/attention.h"
#include "layers/embedding.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "layers/rotary.h"
#include "models/model.h"
#include "ops/decoder_step.h"

namespace quire {

// What a family adds to ModelConfig.
struct DecoderOptions {
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each query and key head, before the rotary embedding
  // The checkpoint has qkv_proj and gate_up_proj, not q_proj, k_proj, v_proj, gate_proj and
  // up_proj.
  bool fused_checkpoint = false;
};

// Names of a checkpoint's linear layers, layer by layer, then the output layer's if it has one of
// its own.
std::vector<std::string> linear_layers_of_decoder(const ModelConfig& config,
                                                  const DecoderOptions& decoder);

// Where the matrices of a decoder are, and its tables with a row for each token.
Placement matrix_placement(const ModelOptions& options);
Placement table_placement(const ModelOptions& options);
// The options themselves; throws Error where they cannot be run.
const ModelOptions& checked_decoder_options(const ModelOptions& options);

// What the layers' weights take.
struct DecoderMemory {
  MemoryItem attention = {.name = "attention weights", .formats = {}};
  MemoryItem mlp = {.name = "MLP weights", .formats = {}};
  MemoryItem norms = {.name = "norm weights", .formats = {std::string(name_of(DType::kFloat32))}};
};

class DecoderLayer {
 public:
  DecoderLayer(const AttentionConfig& attention, const MlpConfig& mlp, const Placement& place);

  void add_parameters(const std::string& name, ParameterMap& parameters);
  void add_lora_sites(const std::string& name, LoraSites& sites) const;
  void add_memory(DecoderMemory& memory);
  void add_products(std::vector<MatrixProduct>& products) const;

  // As Attention and Mlp have it.
  bool describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const;
  const Attention& attention() const { return attention_; }

  // Works in place. `layer`: its place in the model. In the first `hidden` doesn't hold anything
  // yet: the embedding is in `residual`.
  void forward(ForwardContext& context, const Tensor& cos_sin, const KvCacheView& cache,
               int64_t layer, const IntermediateTensors& state) const;

 private:
  RmsNorm input_norm_;
  Attention attention_;
  RmsNorm post_attention_norm_;
  Mlp mlp_;
};

class Decoder final : public Model {
 public:
  // Throws Error where the options' config can't be run: an activation other than silu, a
  // tensor_parallel_size that doesn't divide the model, layers of one matrix that are quantised
  // differently.
  Decoder(const ModelOptions& options, const DecoderOptions& decoder);

  ParameterMap parameters() override;
  LoraSites lora_sites() const override;
  std::vector<MemoryItem> memory() override;
  KvCacheShape kv_cache_shape() const override;
  std::vector<MatrixProduct> products() const override;
  void bind_adapters(const GpuLora& adapters) override { adapters_ = &adapters; }
  void bind_cache(Stream& stream, Communicator& comm,
                  std::span<const KvCacheView> kv_caches) override;
  IntermediateTensors forward(ForwardContext& context,
                              std::optional<IntermediateTensors> previous) override;
  Tensor compute_logits(ForwardContext& context, const Tensor& hidden) override;
  VocabTables vocab_tables() const override;

 private:
  const VocabTable& output_table() const { return lm_head_ ? *lm_head_ : *embed_tokens_; }
  void make_decoder_step(Stream& stream, const PeerWords& peers);
  bool runs_one_step(const ForwardContext& context) const;
  // Whether the kernel of a whole step can hand these out, and of which of this stage's layers, by
  // their places in it.
  bool can_tap(const AuxStates* aux) const;
  std::vector<int64_t> tapped_layers(const AuxStates* aux) const;
  // forward() with the kernel of a whole step, and without it.
  void run_step(ForwardContext& context, const IntermediateTensors& state) const;
  void run_layers(ForwardContext& context, const IntermediateTensors& state) const;

  ModelConfig config_;
  bool fused_checkpoint_;
  ParallelRank at_;
  bool has_peer_words_;
  bool fills_gpu_;
  DType dtype_;
  int64_t first_layer_;
  int64_t last_layer_;
  RotaryTable rotary_;
  // Also the output layer where the two are tied.
  std::optional<VocabTable> embed_tokens_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;
  std::optional<RmsNorm> final_norm_;
  std::optional<VocabTable> lm_head_;
  std::span<const KvCacheView> kv_caches_;
  const GpuLora* adapters_ = nullptr;  // null where none are served
  // On a GPU that has the kernel.
  std::optional<ops::DecoderStep> decoder_step_;
};

}  // namespace quire
