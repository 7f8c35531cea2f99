#include "server/engine_port.h"

#include <utility>

#include "quire/async_llm.h"

namespace quire::server {
namespace {

class StreamSource : public OutputSource {
 public:
  explicit StreamSource(RequestStream stream) : stream_(std::move(stream)) {}
  std::optional<RequestOutput> try_next() override { return stream_.try_next(); }
  bool ended() const override { return stream_.ended(); }
  void cancel() override { stream_.cancel(); }

 private:
  RequestStream stream_;
};

class AsyncEnginePort : public EnginePort {
 public:
  explicit AsyncEnginePort(AsyncLLM& llm) : llm_(llm) {}

  std::unique_ptr<OutputSource> submit(std::vector<int32_t> prompt, const SamplingParams& params,
                                       RequestOptions options,
                                       std::function<void()> on_ready) override {
    options.output_kind = OutputKind::kDelta;
    return std::make_unique<StreamSource>(
        llm_.generate(std::move(prompt), params, std::move(options), std::move(on_ready)));
  }
  std::shared_ptr<const void> compile(const StructuredOutput& output) override {
    return llm_.compile(output);
  }
  std::optional<std::shared_ptr<const void>> compile_by(
      const StructuredOutput& output, std::chrono::steady_clock::time_point end) override {
    return found(llm_.compile_by(output, end));
  }
  std::optional<std::shared_ptr<const void>> find_compiled(
      const StructuredOutput& output) override {
    return found(llm_.find_compiled(output));
  }
  void load_lora(const std::string& name, const std::string& path, bool replace,
                 const LoraPathCheck& check) override {
    llm_.load_lora(name, path, replace, check);
  }
  void unload_lora(const std::string& name) override { llm_.unload_lora(name); }
  std::optional<LoraAdapterInfo> find_lora_info(const std::string& name) const override {
    return llm_.find_lora_info(name);
  }
  HeldLora hold_lora(const std::string& name) override { return llm_.hold_lora(name); }
  std::optional<HeldLora> find_lora(const std::string& name) override {
    return found(llm_.find_lora(name));
  }
  EngineStats stats() const override { return llm_.stats(); }

 private:
  template <typename Holder>
  static std::optional<Holder> found(Holder holder) {
    if (holder == nullptr) return std::nullopt;
    return holder;
  }

  AsyncLLM& llm_;
};

}  // namespace

std::unique_ptr<EnginePort> make_engine_port(AsyncLLM& llm) {
  return std::make_unique<AsyncEnginePort>(llm);
}

}  // namespace quire::server
