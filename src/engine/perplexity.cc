#include "quire/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/mapped_file.h"
#include "hub/model_path.h"
#include "loader/model_config.h"
#include "quire/llm.h"
#include "quire/model_text.h"

namespace quire {
namespace {

constexpr size_t kMaxTextBytes = 1 << 30;
constexpr int64_t kUsualContext = 1024;

// Tokens [begin, end), of which those from first_scored on are scored.
struct Window {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_scored = 0;
};

// The engine keeps room for an answer of one token.
int64_t longest_context(const PerplexityOptions& options, const ModelConfig& model) {
  return options.engine.max_model_len.value_or(model.max_model_len()) - 1;
}

// Fills context and stride in.
PerplexityResult choose_windows(const PerplexityOptions& options, const ModelConfig& model) {
  PerplexityResult result;
  const int64_t longest = longest_context(options, model);
  result.context = options.context.value_or(std::min(kUsualContext, longest));
  if (result.context < 2 || result.context > longest) {
    throw Error(
        fmt::format("The context is {} tokens; expected 2 to {}, one fewer than the model "
                    "can do.",
                    result.context, longest));
  }
  result.stride = options.stride.value_or(result.context / 2);
  if (result.stride < 1 || result.stride >= result.context) {
    throw Error(
        fmt::format("The stride is {} tokens; expected 1 to {}, as a window's first token is "
                    "predicted in the window before.",
                    result.stride, result.context - 1));
  }
  return result;
}

std::vector<Window> cut_into_windows(int64_t num_tokens, const PerplexityResult& sizes) {
  std::vector<Window> windows;
  int64_t scored = 1;  // nothing predicts the first token
  for (int64_t begin = 0; scored < num_tokens; begin += sizes.stride) {
    const int64_t end = std::min(num_tokens, begin + sizes.context);
    windows.push_back({begin, end, scored});
    scored = end;
  }
  return windows;
}

std::vector<int32_t> tokens_of_text(const PerplexityOptions& options,
                                    const std::filesystem::path& model) {
  std::vector<int32_t> ids =
      load_tokenizer(model).encode(read_text_file(options.text, kMaxTextBytes));
  if (ids.size() >= 2) return ids;
  throw Error(fmt::format("{}: the text has {} tokens; expected 2 or more.", options.text.string(),
                          ids.size()));
}

}  // namespace

PerplexityResult perplexity_of(std::span<const double> logprobs) {
  PerplexityResult result;
  const auto count = static_cast<double>(logprobs.size());
  double sum = 0;
  for (const double logprob : logprobs) sum += logprob;
  result.num_scored = std::ssize(logprobs);
  result.mean_logprob = sum / count;
  double squares = 0;
  for (const double logprob : logprobs) {
    squares += (logprob - result.mean_logprob) * (logprob - result.mean_logprob);
  }
  result.perplexity = std::exp(-result.mean_logprob);
  // That of the mean, times the slope of exp().
  const double variance = count > 1 ? squares / (count - 1) : 0;
  result.standard_error = result.perplexity * std::sqrt(variance / count);
  return result;
}

std::optional<PerplexityResult> measure_perplexity(const PerplexityOptions& options) {
  const std::filesystem::path model = resolve_model(options.engine.model);
  const PerplexityResult sizes = choose_windows(options, load_model_config(model));
  const std::vector<int32_t> ids = tokens_of_text(options, model);
  const std::vector<Window> windows = cut_into_windows(std::ssize(ids), sizes);

  EngineConfig config = options.engine;
  config.max_model_len = sizes.context + 1;
  config.enable_prefix_caching = false;
  LLM llm(config);
  bool is_ended = false;
  llm.set_step_callback([&](size_t done, size_t total, const EngineStats&) {
    is_ended = is_ended || (options.on_window && !options.on_window(static_cast<int64_t>(done),
                                                                    static_cast<int64_t>(total)));
    return !is_ended;
  });
  std::vector<Prompt> prompts;
  for (const Window& window : windows) {
    prompts.emplace_back(
        std::vector<int32_t>(ids.begin() + window.begin, ids.begin() + window.end));
  }
  const SamplingParams params{
      .temperature = 0, .max_tokens = 1, .ignore_eos = true, .prompt_logprobs = 0};
  const std::vector<RequestOutput> outputs = llm.generate(prompts, params);
  if (is_ended) return std::nullopt;

  std::vector<double> logprobs;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (!outputs[i].error.empty()) throw Error(outputs[i].error);
    for (int64_t token = windows[i].first_scored; token < windows[i].end; ++token) {
      logprobs.push_back(
          outputs[i].prompt_logprobs[static_cast<size_t>(token - windows[i].begin)].at(0).logprob);
    }
  }
  PerplexityResult result = perplexity_of(logprobs);
  result.num_tokens = std::ssize(ids);
  result.num_windows = std::ssize(windows);
  result.context = sizes.context;
  result.stride = sizes.stride;
  return result;
}

}  // namespace quire
