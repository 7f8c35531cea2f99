#pragma once
// Offline generation: a batch of prompts in, their outputs out, in the same order.
//
//   quire::LLM llm({.model = "models/lexicon"});
//   for (const auto& output : llm.generate({"define apple", "define pear"}, {.temperature = 0}))
//     std::cout << output.outputs[0].text << '\n';
//
// Thread safety: one thread at a time.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "quire/llm_engine.h"

namespace quire {

class LLM {
 public:
  // See LLMEngine's constructor.
  explicit LLM(EngineConfig config);
  ~LLM();
  LLM(LLM&&) noexcept;
  LLM& operator=(LLM&&) noexcept;

  // One SamplingParams for all prompts. Throws Error, before anything runs, if one of them cannot
  // be served; the message names the prompt by its index.
  std::vector<RequestOutput> generate(const std::vector<Prompt>& prompts,
                                      const SamplingParams& params);
  // The same with SamplingParams for each prompt.
  std::vector<RequestOutput> generate(const std::vector<Prompt>& prompts,
                                      const std::vector<SamplingParams>& params);

  // The same with an adapter (RequestOptions::lora) for each prompt, too.
  std::vector<RequestOutput> generate(const std::vector<Prompt>& prompts,
                                      const std::vector<SamplingParams>& params,
                                      const std::vector<std::string>& loras);

  // Renders each conversation with the model's chat template and generates the next message.
  std::vector<RequestOutput> chat(const std::vector<ChatInput>& conversations,
                                  const SamplingParams& params);
  std::vector<RequestOutput> chat(const std::vector<ChatInput>& conversations,
                                  const std::vector<SamplingParams>& params);
  std::vector<RequestOutput> chat(const std::vector<ChatInput>& conversations,
                                  const std::vector<SamplingParams>& params,
                                  const std::vector<std::string>& loras);

  // Called after each step of generate() and chat(), for progress bars: prompts finished so far,
  // the number of prompts, and the engine's counters. Returning false aborts what still runs: those
  // outputs end with kAbort.
  using StepCallback =
      std::function<bool(size_t num_finished, size_t num_prompts, const EngineStats&)>;
  void set_step_callback(StepCallback callback);

  LLMEngine& engine();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
