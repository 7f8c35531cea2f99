#pragma once
// The engine with its loop on a thread of its own: requests come from any thread, outputs stream
// back.
//
//   quire::AsyncLLM llm({.model = "models/lexicon"});
//   quire::RequestStream stream = llm.generate("define apple", {.max_tokens = 64});
//   while (auto output = stream.next()) std::cout << output->outputs[0].text << std::flush;
//
// Thread safety: AsyncLLM from any thread; a RequestStream from one at a time, but cancel() from
// any.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "quire/llm_engine.h"

namespace quire {

// The outputs of one request. Destroying it cancels the request.
class RequestStream {
 public:
  ~RequestStream();
  RequestStream(RequestStream&&) noexcept;
  RequestStream& operator=(RequestStream&&) noexcept;

  // Waits for the next output; nothing after the one with finished set. Outputs that were not
  // fetched in time are merged into one, so a slow reader holds no more than one output.
  // Throws Error if the engine failed.
  std::optional<RequestOutput> next();

  // Ends the request: next() returns its last output, with finish_reason kAbort, soon.
  void cancel();

  const std::string& request_id() const;

 private:
  friend class AsyncLLM;
  struct State;
  explicit RequestStream(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

class AsyncLLM {
 public:
  // See LLMEngine's constructor.
  explicit AsyncLLM(EngineConfig config);
  // Aborts what still runs.
  ~AsyncLLM();
  AsyncLLM(const AsyncLLM&) = delete;
  AsyncLLM& operator=(const AsyncLLM&) = delete;

  // Outputs hold what is new (OutputKind::kDelta) unless options say otherwise. Throws Error as
  // LLMEngine::add_request does, from the calling thread.
  RequestStream generate(const Prompt& prompt, const SamplingParams& params,
                         RequestOptions options = {.output_kind = OutputKind::kDelta});
  // Renders the conversation with the model's chat template first.
  RequestStream chat(const ChatInput& conversation, const SamplingParams& params,
                     RequestOptions options = {.output_kind = OutputKind::kDelta});

  EngineStats stats() const;
  int64_t max_model_len() const;
  SamplingParams default_sampling_params() const;
  const Tokenizer& tokenizer() const;
  const ChatTemplate& chat_template() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
