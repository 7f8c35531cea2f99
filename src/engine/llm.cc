#include "quire/llm.h"

#include <fmt/format.h>

#include <utility>

#include "quire/chat_input.h"
#include "quire/error.h"

namespace quire {
namespace {

void name_adapters(const std::vector<std::string>& loras, std::vector<RequestOptions>& options) {
  if (loras.size() != options.size()) {
    throw Error(
        fmt::format("There are {} prompts and {} names of adapters; expected one for each prompt.",
                    options.size(), loras.size()));
  }
  for (size_t i = 0; i < loras.size(); ++i) options[i].lora = loras[i];
}

}  // namespace

class LLM::Impl {
 public:
  explicit Impl(EngineConfig config) : engine(std::move(config)) {}

  std::vector<RequestOutput> run(const std::vector<Prompt>& prompts,
                                 const std::vector<SamplingParams>& params,
                                 std::vector<RequestOptions> options);

  LLMEngine engine;
  StepCallback on_step;

 private:
  void add_all(const std::vector<Prompt>& prompts, const std::vector<SamplingParams>& params,
               const std::vector<RequestOptions>& options);
  // Ends the first `num_prompts` requests, so that none is left to the next call.
  void end_all(size_t num_prompts);
  // Returns the step callback's answer. If the callback throws, the requests end first.
  bool goes_on(size_t num_finished, size_t num_prompts);
};

void LLM::Impl::add_all(const std::vector<Prompt>& prompts,
                        const std::vector<SamplingParams>& params,
                        const std::vector<RequestOptions>& options) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    try {
      engine.add_request(std::to_string(i), prompts[i], params[i], options[i]);
    } catch (const Error& error) {
      end_all(i);
      throw Error(prompts.size() == 1 ? std::string(error.what())
                                      : fmt::format("Prompt {}: {}", i, error.what()));
    } catch (...) {
      end_all(i);
      throw;
    }
  }
}

void LLM::Impl::end_all(size_t num_prompts) {
  for (size_t i = 0; i < num_prompts; ++i) engine.abort(std::to_string(i));
  while (!engine.is_finished()) engine.step();
}

bool LLM::Impl::goes_on(size_t num_finished, size_t num_prompts) {
  try {
    return on_step(num_finished, num_prompts, engine.stats());
  } catch (...) {
    end_all(num_prompts);
    throw;
  }
}

std::vector<RequestOutput> LLM::Impl::run(const std::vector<Prompt>& prompts,
                                          const std::vector<SamplingParams>& params,
                                          std::vector<RequestOptions> options) {
  if (params.size() != prompts.size()) {
    throw Error(
        fmt::format("There are {} prompts and {} SamplingParams; expected one for each prompt.",
                    prompts.size(), params.size()));
  }
  if (!engine.is_finished()) {
    throw Error("The engine has requests of its own (LLM::engine()); finish or abort them first.");
  }
  for (RequestOptions& each : options) each.output_kind = OutputKind::kFinalOnly;
  add_all(prompts, params, options);
  std::vector<RequestOutput> outputs(prompts.size());
  size_t num_finished = 0;
  bool aborted = false;
  while (!engine.is_finished()) {
    for (RequestOutput& output : engine.step()) {
      const auto index = static_cast<size_t>(std::stoull(output.request_id));
      outputs[index] = std::move(output);
      ++num_finished;
    }
    if (on_step && !aborted && !goes_on(num_finished, prompts.size())) {
      aborted = true;
      for (size_t i = 0; i < prompts.size(); ++i) engine.abort(std::to_string(i));
    }
  }
  return outputs;
}

LLM::LLM(EngineConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
LLM::~LLM() = default;
LLM::LLM(LLM&&) noexcept = default;
LLM& LLM::operator=(LLM&&) noexcept = default;

std::vector<RequestOutput> LLM::generate(const std::vector<Prompt>& prompts,
                                         const SamplingParams& params) {
  return generate(prompts, std::vector<SamplingParams>(prompts.size(), params));
}

std::vector<RequestOutput> LLM::generate(const std::vector<Prompt>& prompts,
                                         const std::vector<SamplingParams>& params) {
  return generate(prompts, params, std::vector<std::string>(prompts.size()));
}

std::vector<RequestOutput> LLM::generate(const std::vector<Prompt>& prompts,
                                         const std::vector<SamplingParams>& params,
                                         const std::vector<std::string>& loras) {
  std::vector<RequestOptions> options(prompts.size());
  name_adapters(loras, options);
  return impl_->run(prompts, params, std::move(options));
}

std::vector<RequestOutput> LLM::chat(const std::vector<ChatInput>& conversations,
                                     const SamplingParams& params) {
  return chat(conversations, std::vector<SamplingParams>(conversations.size(), params));
}

std::vector<RequestOutput> LLM::chat(const std::vector<ChatInput>& conversations,
                                     const std::vector<SamplingParams>& params) {
  return chat(conversations, params, std::vector<std::string>(conversations.size()));
}

std::vector<RequestOutput> LLM::chat(const std::vector<ChatInput>& conversations,
                                     const std::vector<SamplingParams>& params,
                                     const std::vector<std::string>& loras) {
  std::vector<Prompt> prompts;
  std::vector<RequestOptions> options;
  const bool parses = impl_->engine.config().parse_special_tokens;
  for (const ChatInput& conversation : conversations) {
    RenderedChat rendered = impl_->engine.chat_template().render_marked(conversation);
    prompts.emplace_back(std::move(rendered.text));
    options.push_back({.add_special_tokens = false});
    if (!parses) options.back().plain_text = std::move(rendered.from_messages);
  }
  name_adapters(loras, options);
  return impl_->run(prompts, params, std::move(options));
}

void LLM::set_step_callback(StepCallback callback) {
  impl_->on_step = std::move(callback);
}
LLMEngine& LLM::engine() {
  return impl_->engine;
}

}  // namespace quire
