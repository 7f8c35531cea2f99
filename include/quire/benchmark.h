#pragma once
// What a benchmark needs to hold a run against the machine's limits.
//
// Thread safety: free functions; the measurement wants an otherwise idle machine.
#include "quire/engine_config.h"
#include "quire/error.h"

namespace quire {

// What the threads of an engine with this config can reach on this machine, measured in about a
// second with the instructions that the engine would use (QUIRE_CPU_ISA). GPUs are not measured:
// all zeros for an engine on GPUs.
struct MachineLimits {
  double read_gb_s = 0;  // reading memory, 10^9 bytes a second
  // 10^9 operations a second in matrix products; a multiply-add counts as two. For a model with
  // integer and floating point products: the rate when each kind runs at its own peak.
  double peak_gflops = 0;
};
MachineLimits measure_machine(const EngineConfig& config);

// What the model costs, to turn tokens a second into bytes and operations a second.
struct ModelCost {
  double weight_bytes = 0;        // read once a decode step: every matrix, and the output layer
  double flops_per_token = 0;     // matrix products of one token, without the output layer
  double output_layer_flops = 0;  // of one row of logits
  double attention_flops_per_context_token = 0;  // of one token, for each token that it sees
  double kv_bytes_per_token = 0;                 // read by a decode step for each token of context
};
ModelCost model_cost(const EngineConfig& config);

}  // namespace quire
