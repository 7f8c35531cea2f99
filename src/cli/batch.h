#pragma once
// Runs a batch of prompts through an engine: outputs in the order of the prompts, progress on the
// way, an end when interrupted.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "cli/json_text.h"
#include "cli/prompts.h"
#include "quire/llm_engine.h"

namespace quire::cli {

class Batch {
 public:
  // `engine` must outlive the batch.
  explicit Batch(LLMEngine& engine) : engine_(engine) {}

  // Queues a prompt: a chat is rendered, with its own special tokens and no others. Throws Error,
  // naming where it comes from, if it cannot be served; then nothing of the batch has run.
  void add(const PromptRequest& request, const SamplingParams& params);

  struct Callbacks {
    // An output, in the order of the prompts.
    std::function<void(size_t index, const Json& prompt, const RequestOutput& output)> on_output;
    // After each step: outputs finished so far.
    std::function<void(size_t num_finished, const EngineStats& stats)> on_step;
  };

  // Runs until all are finished, or ended because `stop` became true.
  void run(const Callbacks& callbacks, const std::atomic<bool>& stop);

  size_t size() const { return prompts_.size(); }

 private:
  void finish(RequestOutput output, const Callbacks& callbacks);

  LLMEngine& engine_;
  std::vector<Json> prompts_;  // as they are shown: text, or null for token ids
  std::vector<std::optional<RequestOutput>> outputs_;
  size_t num_finished_ = 0;
  size_t num_reported_ = 0;
};

}  // namespace quire::cli
