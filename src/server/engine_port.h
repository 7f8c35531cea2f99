#pragma once
// The engine as the server sees it: prompts go in, outputs are fetched when there is news.
//
// The front end uses only this interface, so that it can be tested and measured with an engine that
// computes nothing.
//
// Thread safety: EnginePort from any thread, an OutputSource from one thread at a time.
#include <chrono>
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

  // What is new since the last call; nothing if nothing is. The last output has `finished` set, and
  // `error` if the request failed. Throws EngineFailure.
  virtual std::optional<RequestOutput> try_next() = 0;
  // Whether the engine is done with the request; `on_ready` is called then, too.
  virtual bool ended() const = 0;
  // Ends the request: its last output, with kAbort, comes soon.
  virtual void cancel() = 0;
};

class EnginePort {
 public:
  virtual ~EnginePort() = default;

  // Uses all of `options` except the kind of output. `on_ready` as in AsyncLLM::generate. Throws
  // Error for what the engine refuses, EngineFailure if it takes no more requests.
  virtual std::unique_ptr<OutputSource> submit(std::vector<int32_t> prompt,
                                               const SamplingParams& params, RequestOptions options,
                                               std::function<void()> on_ready) = 0;
  // Compiles a constraint, which may take seconds. submit() finds it while somebody holds the
  // result. Throws Error for what cannot be compiled. An engine without constraints accepts all.
  virtual std::shared_ptr<const void> compile(const StructuredOutput& /*output*/) {
    return nullptr;
  }
  // The result or the Error of compile(), where that takes no longer than until `end`; else
  // nothing.
  virtual std::optional<std::shared_ptr<const void>> compile_by(
      const StructuredOutput& /*output*/, std::chrono::steady_clock::time_point /*end*/) {
    return nullptr;
  }
  // The result or the Error of compile(), where that is known at once; nothing where it has to
  // work.
  virtual std::optional<std::shared_ptr<const void>> find_compiled(
      const StructuredOutput& /*output*/) {
    return nullptr;
  }
  // Adapters, as in AsyncLLM. An engine that serves none has none, and accepts all names.
  virtual void load_lora(const std::string& /*name*/, const std::string& /*path*/, bool /*replace*/,
                         const LoraPathCheck& /*check*/ = {}) {}
  virtual void unload_lora(const std::string& /*name*/) {}
  virtual std::optional<LoraAdapterInfo> find_lora_info(const std::string& /*name*/) const {
    return std::nullopt;
  }
  // May take long. With its result in RequestOptions::lora_weights, submit() is quick.
  virtual HeldLora hold_lora(const std::string& /*name*/) { return nullptr; }
  // The result or the Error of hold_lora(), where that is known at once; nothing where it has to
  // read.
  virtual std::optional<HeldLora> find_lora(const std::string& /*name*/) { return nullptr; }
  virtual EngineStats stats() const = 0;
};

// `llm` must outlive it.
std::unique_ptr<EnginePort> make_engine_port(AsyncLLM& llm);

}  // namespace quire::server
