#pragma once
// The engine as the server sees it: prompts in, outputs that are fetched when there is news.
//
// The front end runs on this interface alone, so that it can be tested and measured with an engine
// that computes nothing.
//
// Thread safety: EnginePort from any thread, an OutputSource from one thread at a time.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/llm_engine.h"

namespace quire {
class AsyncLLM;
}  // namespace quire

namespace quire::server {

// The outputs of one prompt, of OutputKind::kDelta. Destroying it cancels what still runs.
class OutputSource {
 public:
  virtual ~OutputSource() = default;

  // What is new since the last call; nothing where nothing is. The last output has finished set,
  // and error if the request failed. Throws EngineFailure.
  virtual std::optional<RequestOutput> try_next() = 0;
  // Whether the engine is done with it; `on_ready` is called when that comes about, too.
  virtual bool ended() const = 0;
  // Ends it: its last output, with kAbort, comes soon.
  virtual void cancel() = 0;
};

class EnginePort {
 public:
  virtual ~EnginePort() = default;

  // `options` but for the kind of output. `on_ready` as of AsyncLLM::generate. Throws Error for
  // what the engine refuses, EngineFailure if it takes nothing any more.
  virtual std::unique_ptr<OutputSource> submit(std::vector<int32_t> prompt,
                                               const SamplingParams& params, RequestOptions options,
                                               std::function<void()> on_ready) = 0;
  // Compiles a constraint, which may take seconds: submit() finds it while somebody holds what this
  // returns. Throws Error for what cannot be compiled. An engine that knows none takes all.
  virtual std::shared_ptr<const void> compile(const StructuredOutput& /*output*/) {
    return nullptr;
  }
  // What compile() would return or throw, where that is known at once; nothing where it has to
  // work.
  virtual std::optional<std::shared_ptr<const void>> find_compiled(
      const StructuredOutput& /*output*/) {
    return nullptr;
  }
  // Adapters, as AsyncLLM has them. An engine that serves none has none, and takes all names.
  virtual void load_lora(const std::string& /*name*/, const std::string& /*path*/, bool /*replace*/,
                         const LoraPathCheck& /*check*/ = {}) {}
  virtual void unload_lora(const std::string& /*name*/) {}
  virtual std::optional<LoraAdapterInfo> find_lora_info(const std::string& /*name*/) const {
    return std::nullopt;
  }
  // May take long. submit() is quick with what this returns (RequestOptions::lora_weights).
  virtual HeldLora hold_lora(const std::string& /*name*/) { return nullptr; }
  // What hold_lora() would return or throw, where that is known at once; nothing where it has to
  // read.
  virtual std::optional<HeldLora> find_lora(const std::string& /*name*/) { return nullptr; }
  virtual EngineStats stats() const = 0;
};

// `llm` must outlive it.
std::unique_ptr<EnginePort> make_engine_port(AsyncLLM& llm);

}  // namespace quire::server
