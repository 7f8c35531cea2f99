#pragma once
// What a family may choose of a decoder, and what every model of such layers asks of its options.
#include "layers/placement.h"
#include "models/model.h"

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

// Where the matrices of a decoder are, and its tables with a row for each token.
Placement matrix_placement(const ModelOptions& options);
Placement table_placement(const ModelOptions& options);
// The options themselves; throws Error where they cannot be run.
const ModelOptions& checked_decoder_options(const ModelOptions& options);

}  // namespace quire
