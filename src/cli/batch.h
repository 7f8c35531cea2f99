#pragma once
// Runs a batch of prompts through an engine: outputs in the order of the prompts, with progress;
// can be interrupted.
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/json_lines.h"
#include "cli/prompts.h"
#include "quire/llm_engine.h"

namespace quire::cli {

class Batch {
 public:
  // `engine` must outlive the batch.
  explicit Batch(LLMEngine& engine) : engine_(engine) {}

  // Queues a prompt. A chat is rendered, with its own special tokens and no others. Throws Error,
  // naming where the prompt comes from, if it cannot be served; nothing of the batch has run then.
  void add(const PromptRequest& request, const SamplingParams& params);

  struct Progress {
    size_t num_finished = 0;  // prompts
    double fraction = 0;      // of the tokens that there may be at most, 0 to 1; it never falls
  };
  struct Callbacks {
    // An output, in the order of the prompts.
    std::function<void(size_t index, const Json& prompt, const RequestOutput& output)> on_output;
    // After each step.
    std::function<void(const Progress& progress, const EngineStats& stats)> on_step;
  };

  // Runs until all are finished, or ended because `stop` became true.
  void run(const Callbacks& callbacks, const std::atomic<bool>& stop);

  size_t size() const { return prompts_.size(); }

 private:
  void finish(RequestOutput output, const Callbacks& callbacks);

  // The most tokens that the outputs of a request may have together.
  int64_t output_limit(const SamplingParams& params) const;

  LLMEngine& engine_;
  std::vector<Json> prompts_;  // as they are shown: text, or null for token ids
  std::vector<std::optional<RequestOutput>> outputs_;
  std::vector<int64_t> output_limits_;  // tokens, for each prompt
  int64_t num_output_tokens_ = 0;       // that there may be at most: fewer with each early end
  size_t num_finished_ = 0;
  size_t num_reported_ = 0;
};

}  // namespace quire::cli
