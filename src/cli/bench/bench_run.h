#pragma once
// Runs a benchmark's workload and reports its speed.
#include <cstdint>
#include <vector>

#include "cli/bench/bench_workload.h"
#include "cli/json_lines.h"
#include "cli/terminal/terminal.h"
#include "quire/benchmark.h"
#include "quire/llm_engine.h"

namespace quire::cli {

struct BenchFigures {
  int64_t num_seqs = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double elapsed_s = 0;
  double prefill_s = 0;  // time of steps that held prompt tokens
  double decode_s = 0;   // time of the others
  double gpu_s = 0;      // time in which the GPU worked; 0 on the CPU
  int64_t decode_step_tokens = 0;
  double decode_bytes = 0;
  double prefill_flops = 0;
  SpeculativeStats drafts{};
  std::vector<double> ttft_s;  // one a sequence
  std::vector<double> tpot_s;  // one a sequence with more than one token
};

// Runs one workload to its end and adds to `figures`. Tokens are sampled at temperature 0.6 and the
// end-of-sequence token is ignored, so each output has its full length, except answers to a
// constraint that are complete earlier.
void run_workload(LLMEngine& engine, const BenchWorkload& workload, const ModelCost& cost,
                  BenchFigures& figures);

Json figures_to_json(const BenchFigures& figures, const MachineLimits& limits);
void print_figures(const BenchFigures& figures, const MachineLimits& limits, Terminal& terminal);

}  // namespace quire::cli
