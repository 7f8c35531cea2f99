#pragma once
// What happens to each tensor when a checkpoint is quantised: the matrices of linear layers are
// rounded, everything else stays.
//
// Thread safety: plain values and free functions without state.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "loader/checkpoint.h"
#include "loader/checkpoint_writer.h"
#include "loader/model_config.h"
#include "quantise/matrix_source.h"
#include "quantise/rounded_matrix.h"

namespace quire {

struct PlannedMatrix {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  MatrixShape shape;
  bool is_rounded = false;  // else its numbers are kept, as a dense tensor
  int64_t layer = -1;       // of the decoder; -1: of none
  size_t source_bytes = 0;
};

struct QuantisePlan {
  // Tensors that stay, in the checkpoint's order, then matrices, layer by layer: the order in which
  // they are written.
  std::vector<const CheckpointTensor*> copied;
  std::vector<PlannedMatrix> matrices;
  std::vector<std::string> kept;  // linear layers that are not rounded
  size_t source_bytes = 0;        // of the whole checkpoint

  // The tensors to write, in order.
  std::vector<WrittenTensor> written(const RoundingTarget& target) const;
};

// First compares the checkpoint with the model that the config describes. Throws Error where they
// don't match, and where no layer can be rounded. The output layer is not rounded, nor a layer
// whose inputs do not fill whole groups. The checkpoint must outlive the plan.
QuantisePlan plan_quantisation(const Checkpoint& checkpoint, const ModelConfig& config,
                               const RoundingTarget& target);

}  // namespace quire
