#pragma once
// An engine that computes nothing and gives its outputs at once.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine_port.h"

namespace quire::server {

// Answers within submit(), so that the same request always makes the same allocations.
class InstantEngine : public EnginePort {
 public:
  // A request for so many tokens gets one, and the next when it is cancelled.
  static constexpr int64_t kEndless = 990;

  // `token_text`: of each output token.
  explicit InstantEngine(std::string token_text) : token_text_(std::move(token_text)) {}

  std::unique_ptr<OutputSource> submit(std::vector<int32_t> prompt, const SamplingParams& params,
                                       RequestOptions, std::function<void()> on_ready) override {
    auto source = std::make_unique<Source>(std::move(prompt), params, *this, on_ready);
    on_ready();
    return source;
  }
  // That have not been freed. From any thread.
  int num_requests() const { return num_requests_; }
  EngineStats stats() const override { return {}; }
  // Another thread compiles it.
  std::optional<std::shared_ptr<const void>> find_compiled(const StructuredOutput&) override {
    return std::nullopt;
  }
  void load_lora(const std::string&, const std::string&, bool, const LoraPathCheck&) override {
    has_adapter_ = true;
  }
  void unload_lora(const std::string&) override { has_adapter_ = false; }
  std::optional<LoraAdapterInfo> find_lora_info(const std::string& name) const override {
    if (!has_adapter_) return std::nullopt;
    LoraAdapterInfo info;
    info.name = name;
    info.path = "/";
    return info;
  }

 private:
  class Source : public OutputSource {
   public:
    Source(std::vector<int32_t> prompt, const SamplingParams& params, InstantEngine& engine,
           std::function<void()> on_ready)
        : prompt_(std::move(prompt)),
          params_(params),
          is_call_(forces_call(params)),
          engine_(engine),
          on_ready_(std::move(on_ready)) {
      ++engine_.num_requests_;
    }
    ~Source() override { --engine_.num_requests_; }

    std::optional<RequestOutput> try_next() override {
      if (ended_ || (num_given_ == 1 && is_endless() && !cancelled_)) return std::nullopt;
      RequestOutput output;
      if (params_.prompt_logprobs && !prompt_.empty()) {
        output.prompt_logprobs.assign(prompt_.size(), position());
        output.prompt_logprobs.front().clear();
      }
      output.prompt_token_ids = std::exchange(prompt_, {});
      // A call comes in two pieces.
      const int64_t num_pieces = is_call_ ? 2 : params_.max_tokens.value_or(16);
      const bool last = cancelled_ || ++num_given_ >= num_pieces;
      for (int i = 0; i < static_cast<int>(params_.n); ++i) {
        CompletionOutput& completion = output.outputs.emplace_back();
        completion.index = i;
        completion.text =
            is_call_ ? (last ? kCallEnd : kCallBegin) : std::string_view(engine_.token_text_);
        completion.token_ids = {2};
        if (params_.logprobs) completion.logprobs = {position()};
        if (last) {
          completion.finish_reason = is_call_ ? FinishReason::kStop : FinishReason::kLength;
        }
      }
      output.finished = ended_ = last;
      return output;
    }
    bool ended() const override { return ended_; }
    void cancel() override {
      if (std::exchange(cancelled_, true) || !is_endless()) return;
      on_ready_();
    }

   private:
    static constexpr const char* kCallBegin =
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\"";
    static constexpr const char* kCallEnd = ": 1}}\n</tool_call>";

    static bool forces_call(const SamplingParams& params) {
      const auto& output = params.structured_output;
      return output && output->kind != StructuredOutput::Kind::kJsonObject;
    }
    bool is_endless() const { return params_.max_tokens == kEndless; }
    static PositionLogprobs position() {
      return {{.token_id = 2, .logprob = -0.5F, .rank = 1, .decoded_token = "ab"}};
    }

    std::vector<int32_t> prompt_;
    const SamplingParams params_;
    const bool is_call_;
    InstantEngine& engine_;
    const std::function<void()> on_ready_;
    int64_t num_given_ = 0;
    bool cancelled_ = false;
    bool ended_ = false;
  };

  const std::string token_text_;
  std::atomic<int> num_requests_ = 0;
  std::atomic<bool> has_adapter_ = false;
};

}  // namespace quire::server
