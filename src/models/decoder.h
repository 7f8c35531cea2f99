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

#include "layers/embedding.h"
#include "layers/norm.h"
#include "layers/rotary.h"
#include "models/decoder_layer.h"
#include "models/decoder_options.h"
#include "models/model.h"
#include "ops/decoder_step.h"

namespace quire {

// Names of a checkpoint's linear layers, layer by layer, then the output layer's if it has one of
// its own.
std::vector<std::string> linear_layers_of_decoder(const ModelConfig& config,
                                                  const DecoderOptions& decoder);

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
