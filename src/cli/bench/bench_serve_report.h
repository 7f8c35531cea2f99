#pragma once
// The results of `quire bench serve`, as JSON with the keys of `vllm bench serve` and as a table.
#include <string>

#include "cli/json_lines.h"
#include "cli/terminal/terminal.h"
#include "loadgen/load_run.h"

namespace quire::cli {

struct ServeBenchSetup {
  std::string base_url;
  std::string model;
  int64_t num_prompts = 0;  // different ones
  loadgen::Schedule schedule;
};

// docs/benchmarking.md says what each key means.
Json report_to_json(const ServeBenchSetup& setup, const loadgen::LoadReport& report);

void print_report(const ServeBenchSetup& setup, const loadgen::LoadReport& report,
                  Terminal& terminal);

// The failures, in one sentence; empty if every request succeeded.
std::string failure_sentence(const loadgen::LoadReport& report);

}  // namespace quire::cli
