#pragma once
// What becomes of each tensor of a checkpoint that is quantised: the matrices of the decoder's
// layers are rounded, and the output layer where that is asked for; everything else stays.
//
// Thread safety: plain values and free functions without state.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/checkpoint_writer.h"
#include "loader/model_config.h"
#include "quantise/matrix_source.h"
#include "quantise/rounded_matrix.h"

namespace quire {

struct RoundingTargets {
  RoundingTarget layers;
  // Of the output layer, and of the embedding that it is where the two are tied; none: it stays.
  std::optional<RoundingTarget> output;
};

struct PlannedMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  MatrixShape shape;
  // None: its numbers are kept, as a dense tensor.
  std::optional<RoundingTarget> rounded_to = std::nullopt;
  int64_t layer = -1;  // of the decoder; -1: of none
  size_t source_bytes = 0;
};

struct QuantisePlan {
  // Tensors that stay, in the checkpoint's order, then matrices, layer by layer: the order in which
  // they are written.
  std::vector<const CheckpointTensor*> copied;
  std::vector<PlannedMatrix> matrices;
  std::vector<std::string> kept;  // linear layers that are not rounded
  std::string output;             // the module of the output layer where that is rounded
  // Whether scales of keys and values follow the matrices of each layer.
  bool has_kv_scales = false;
  size_t source_bytes = 0;  // of the whole checkpoint

  // What is written, in this order.
  std::vector<WrittenTensor> written(DType dense_dtype) const;
};

// Compares the checkpoint with the model that the config describes first: throws Error where they
// don't match, and where no layer can be rounded. A layer whose inputs are no whole groups is kept.
// The checkpoint outlives the plan. `has_kv_scales`: new scales of keys and values are written, and
// not those that the checkpoint has.
QuantisePlan plan_quantisation(const Checkpoint& checkpoint, const ModelConfig& config,
                               const RoundingTargets& targets, bool has_kv_scales = false);

}  // namespace quire
