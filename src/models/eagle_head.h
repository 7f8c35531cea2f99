#pragma once
// An EAGLE-3 head (Li et al., 2025, https://arxiv.org/abs/2503.01840) or an EAGLE head (Li et al.,
// 2024, https://arxiv.org/abs/2401.15077), one rank's part: a small decoder that says what the
// target model will say next, from the target's hidden states.
//
// Row i has token i + 1 and what is known of token i: where the target has computed it, of EAGLE-3
// project() of the inputs of some of the target's layers, of EAGLE the input of the target's output
// layer; else the row before of the head's own output. A row's residual behind the last layer feeds
// the next row.
// - EAGLE-3: the first layer's attention reads the norms of both side by side. The norm of the
//   residual gives the logits of token i + 2 over the draft vocabulary.
// - EAGLE: `fc` of both side by side is the input of the first layer, whose attention reads it
//   without a norm. The residual itself gives the logits.
//
// The head may share the target's embedding and output layer (share()). It is split over the ranks
// as a decoder is; `fc` is whole on each. Thread safety: as Model says.
#include <memory>
#include <optional>
#include <vector>

#include "layers/embedding.h"
#include "models/decoder.h"
#include "models/model.h"

namespace quire {

class EagleHead final : public Model {
 public:
  // `options` have an eagle, whose layers are its config. Throws Error as Decoder does.
  explicit EagleHead(const ModelOptions& options);

  // Takes from the target what the head has none of its own of. row_ids int32: 0, 1, ... for as
  // many rows as a step may have, where the head computes. Before the first forward().
  void share(const VocabTables& target, const Tensor& row_ids);

  ParameterMap parameters() override;
  LoraSites lora_sites() const override { return LoraSites(); }
  std::vector<MemoryItem> memory() override;
  KvCacheShape kv_cache_shape() const override;
  std::vector<MatrixProduct> products() const override;
  void bind_cache(Stream& stream, Communicator& comm,
                  std::span<const KvCacheView> kv_caches) override;

  // Whether what is known of a token is project() of its states, or they are it.
  bool projects() const { return eagle_.kind == EagleKind::kEagle3; }
  // states [R, layers * target_hidden_size] of AuxStates, out [R, hidden_size].
  void project(ForwardContext& context, const Tensor& states, const Tensor& out) const;

  // The batch's token of a row is the one behind it. `previous` is given: its residual is what is
  // known of the row, its hidden is written. What comes back has the logits' input in hidden, and
  // in residual what is known of the next row.
  IntermediateTensors forward(ForwardContext& context,
                              std::optional<IntermediateTensors> previous) override;
  // float32[num_logits, draft_vocab_size].
  Tensor compute_logits(ForwardContext& context, const Tensor& hidden) override;

 private:
  // The first layer. Of EAGLE-3 its attention has twice the inputs; EAGLE's has no norms before it.
  struct FirstLayer {
    std::optional<RmsNorm> input_norm;
    std::optional<RmsNorm> hidden_norm;
    Attention attention;
    RmsNorm post_attention_norm;
    Mlp mlp;
  };

  void run_first_layer(ForwardContext& context, const IntermediateTensors& state) const;
  // What the first attention reads, in `both` or in the residual.
  Tensor join(ForwardContext& context, const Tensor& token, const Tensor& residual,
              const Tensor& both) const;

  ModelConfig config_;
  EagleConfig eagle_;
  RotaryTable rotary_;
  Linear fc_;
  std::optional<VocabTable> own_embedding_;
  FirstLayer first_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;  // those behind it
  RmsNorm final_norm_;  // EAGLE's only adds: what it makes is not read
  std::optional<VocabTable> own_output_;
  VocabTables shared_;
  Tensor row_ids_;
  std::span<const KvCacheView> kv_caches_;
};

}  // namespace quire
