#include "cli/batch.h"

#include <fmt/format.h>

#include <algorithm>

namespace quire::cli {

void Batch::add(const PromptRequest& request, const SamplingParams& params) {
  RequestOptions options = {.output_kind = OutputKind::kFinalOnly, .priority = request.priority};
  options.lora = request.lora.value_or("");
  Json shown;
  try {
    Prompt prompt;
    if (const auto* text = std::get_if<std::string>(&request.prompt)) {
      prompt = *text;
      shown = *text;
    } else if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.prompt)) {
      prompt = *ids;
    } else {
      RenderedChat rendered =
          engine_.chat_template().render_marked(std::get<ChatInput>(request.prompt));
      shown = rendered.text;
      prompt = std::move(rendered.text);
      options.add_special_tokens = false;
      if (!engine_.config().parse_special_tokens) {
        options.plain_text = std::move(rendered.from_messages);
      }
    }
    engine_.add_request(std::to_string(prompts_.size()), prompt, params, options);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", request.where, error.what()));
  }
  prompts_.push_back(std::move(shown));
  outputs_.emplace_back();
  output_limits_.push_back(output_limit(params));
  num_output_tokens_ += output_limits_.back();
}

int64_t Batch::output_limit(const SamplingParams& params) const {
  const int64_t longest = engine_.max_model_len();
  return params.n * std::min(params.max_tokens ? int64_t{*params.max_tokens} : longest, longest);
}

void Batch::finish(RequestOutput output, const Callbacks& callbacks) {
  const size_t index = std::stoul(output.request_id);
  num_output_tokens_ -= output_limits_[index];
  for (const CompletionOutput& completion : output.outputs) {
    num_output_tokens_ += static_cast<int64_t>(completion.token_ids.size());
  }
  outputs_[index] = std::move(output);
  ++num_finished_;
  for (; num_reported_ < outputs_.size() && outputs_[num_reported_]; ++num_reported_) {
    callbacks.on_output(num_reported_, prompts_[num_reported_], *outputs_[num_reported_]);
    outputs_[num_reported_]->outputs.clear();
  }
}

void Batch::run(const Callbacks& callbacks, const std::atomic<bool>& stop) {
  bool stopped = false;
  const int64_t tokens_before = engine_.stats().generation_tokens;
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
    const EngineStats stats = engine_.stats();
    const auto num_done = static_cast<double>(stats.generation_tokens - tokens_before);
    // Where none may come any more, whatever did come was all.
    const double fraction =
        num_output_tokens_ > 0 ? num_done / static_cast<double>(num_output_tokens_) : 1;
    callbacks.on_step({.num_finished = num_finished_, .fraction = fraction}, stats);
  }
}

}  // namespace quire::cli
