#pragma once
// What a benchmark needs to hold a run against the machine's limits.
//
// Thread safety: free functions; the measurement wants an otherwise idle machine.
#include "quire/engine_config.h"
#include "quire/error.h"

namespace quire {

// What the threads of an engine with this config can reach on this machine, measured in about a
// second, with the instructions that it would use (QUIRE_CPU_ISA). Zeros for an engine on GPUs,
// which are not measured.
struct MachineLimits {
  double read_gb_s = 0;  // reading memory, 10^9 bytes a second
  // Multiply-adds of its matrix products, counted as two, 10^9 a second; of a model with products
  // of integers and of floating point, what it reaches with each kind at its own peak.
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
