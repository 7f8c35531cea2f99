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
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/llm_engine.h"
#include "quire/plan.h"

namespace quire {

// The outputs of one request. Destroying it cancels the request.
class RequestStream {
 public:
  ~RequestStream();
  RequestStream(RequestStream&&) noexcept;
  RequestStream& operator=(RequestStream&&) noexcept;

  // Waits for the next output; nothing once the output with `finished` set was returned. Outputs
  // that were not fetched in time are merged into one, so a slow reader holds no more than one
  // output. Throws EngineFailure if the engine failed. A request that failed says so in `error` of
  // its last output.
  std::optional<RequestOutput> next();

  // Like next(), but does not wait: nothing where no output is ready.
  std::optional<RequestOutput> try_next();

  // Whether the engine is done with the request; its last output may still be there to fetch.
  bool ended() const;

  // Ends the request. next() then soon returns its last output, with finish_reason kAbort.
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
  // `on_ready` is called each time that try_next() has something again after it had nothing (an
  // output, or the engine's failure), and when the last output comes, from the engine's thread,
  // which it must not hold up; it must not throw. It may be called once more after the stream is
  // destroyed.
  RequestStream generate(Prompt prompt, SamplingParams params,
                         RequestOptions options = {.output_kind = OutputKind::kDelta},
                         std::function<void()> on_ready = {});
  // Renders the conversation with the model's chat template first.
  RequestStream chat(const ChatInput& conversation, SamplingParams params,
                     RequestOptions options = {.output_kind = OutputKind::kDelta});

  // Compiles a constraint on the calling thread, unless it is compiled already. This may take
  // seconds. generate() does the same, but finds the work done while somebody holds what this
  // returns. So a thread that must not wait can leave the work to another one. Throws Error as
  // generate() does.
  std::shared_ptr<const void> compile(const StructuredOutput& output);
  // Like compile(), but gives up at `end`: null where the work takes longer. It waits for no other
  // constraint that does.
  std::shared_ptr<const void> compile_by(const StructuredOutput& output,
                                         std::chrono::steady_clock::time_point end);
  // Like compile(), but returns at once: null where compile() has work to do. Throws the Error of a
  // constraint that is remembered as one that cannot be compiled.
  std::shared_ptr<const void> find_compiled(const StructuredOutput& output);

  // As in LLMEngine.
  void load_lora(const std::string& name, const std::string& path, bool replace = false,
                 LoraPathCheck check = {});
  void unload_lora(const std::string& name);
  std::vector<LoraAdapterInfo> loras() const;
  // Nothing where that name is not loaded.
  std::optional<LoraAdapterInfo> find_lora_info(const std::string& name) const;
  HeldLora hold_lora(const std::string& name);
  // Like hold_lora(), but returns at once: null where the weights have to be read. Throws Error for
  // a name that is not loaded.
  HeldLora find_lora(const std::string& name);

  // Sets the function that is called once, with the reason, when the engine fails, even if no
  // request runs. It is called on the engine's thread, or at once if the engine has failed already.
  // An empty function removes the one that was set before.
  void on_failure(std::function<void(const std::string&)> callback);

  // num_waiting also counts requests that the engine has not taken yet.
  EngineStats stats() const;
  int64_t vocab_size() const;
  const EngineConfig& config() const;     // with every default filled in
  const MemoryPlan& memory_plan() const;  // what was taken, and where
  int64_t max_model_len() const;
  SamplingParams default_sampling_params() const;
  const Tokenizer& tokenizer() const;
  const ChatTemplate& chat_template() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
