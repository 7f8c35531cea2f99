#pragma once
// An EAGLE-3 head (Li et al., 2025, https://arxiv.org/abs/2503.01840), one rank's part: a small
// decoder that says what the target model will say next, from the target's hidden states.
//
// Row i has token i + 1 and what is known of token i: project() of the inputs of some of the
// target's layers where the target has computed it, else the row before of the head's own
// output. The first layer's attention reads the norms of both side by side. A row's residual behind
// the last layer feeds the next row, its norm gives the logits of token i + 2 over the draft
// vocabulary.
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

  // Takes from the target what the head has none of its own of. Before the first forward().
  void share(const VocabTables& target);

  ParameterMap parameters() override;
  LoraSites lora_sites() const override { return LoraSites(); }
  std::vector<MemoryItem> memory() override;
  KvCacheShape kv_cache_shape() const override;
  std::vector<MatrixProduct> products() const override;
  void bind_cache(Stream& stream, Communicator& comm,
                  std::span<const KvCacheView> kv_caches) override;

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
  // The first layer; its attention has twice the inputs.
  struct FirstLayer {
    RmsNorm input_norm;
    RmsNorm hidden_norm;
    Attention attention;
    RmsNorm post_attention_norm;
    Mlp mlp;
  };

  void run_first_layer(ForwardContext& context, const IntermediateTensors& state) const;

  ModelConfig config_;
  EagleConfig eagle_;
  RotaryTable rotary_;
  Linear fc_;
  std::optional<VocabTable> own_embedding_;
  FirstLayer first_;
  std::vector<std::unique_ptr<DecoderLayer>> layers_;  // those behind it
  RmsNorm final_norm_;
  std::optional<VocabTable> own_output_;
  VocabTables shared_;
  std::span<const KvCacheView> kv_caches_;
};

}  // namespace quire
