#include "cli/batch.h"

#include <fmt/format.h>

namespace quire::cli {

void Batch::add(const PromptRequest& request, const SamplingParams& params) {
  RequestOptions options = {.output_kind = OutputKind::kFinalOnly};
  Json shown;
  try {
    Prompt prompt;
    if (const auto* text = std::get_if<std::string>(&request.prompt)) {
      prompt = *text;
      shown = *text;
    } else if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.prompt)) {
      prompt = *ids;
    } else {
      std::string rendered = engine_.chat_template().render(std::get<ChatInput>(request.prompt));
      shown = rendered;
      prompt = std::move(rendered);
      options.add_special_tokens = false;
    }
    engine_.add_request(std::to_string(prompts_.size()), prompt, params, options);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", request.where, error.what()));
  }
  prompts_.push_back(std::move(shown));
  outputs_.emplace_back();
}

void Batch::finish(RequestOutput output, const Callbacks& callbacks) {
  outputs_[std::stoul(output.request_id)] = std::move(output);
  ++num_finished_;
  for (; num_reported_ < outputs_.size() && outputs_[num_reported_]; ++num_reported_) {
    callbacks.on_output(num_reported_, prompts_[num_reported_], *outputs_[num_reported_]);
    outputs_[num_reported_]->outputs.clear();
  }
}

void Batch::run(const Callbacks& callbacks, const std::atomic<bool>& stop) {
  bool stopped = false;
  while (!engine_.is_finished()) {
    if (stop && !stopped) {
      stopped = true;
      for (size_t i = 0; i < outputs_.size(); ++i) {
        if (!outputs_[i]) engine_.abort(std::to_string(i));
      }
    }
    for (RequestOutput& output : engine_.step()) {
      if (output.finished) finish(std::move(output), callbacks);
    }
    callbacks.on_step(num_finished_, engine_.stats());
  }
}

}  // namespace quire::cli
