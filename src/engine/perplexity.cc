#include "quire/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "engine/text_file.h"
#include "hub/model_path.h"
#include "loader/model_config.h"
#include "quire/llm.h"
#include "quire/model_text.h"

namespace quire {
namespace {

// Steps for which the engine is given windows at once: enough for most steps to be full, but few
// enough for the log-probabilities to take little memory.
constexpr int64_t kStepsAtOnce = 4;
constexpr int64_t kUsualContext = 1024;

// Tokens [begin, end) of a text. Those from first_scored on are scored.
struct Window {
  size_t text = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_scored = 0;
};

using Texts = std::vector<std::vector<int32_t>>;  // tokens of each

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

std::vector<Window> cut_into_windows(const Texts& texts, const PerplexityResult& sizes) {
  std::vector<Window> windows;
  for (size_t text = 0; text < texts.size(); ++text) {
    const int64_t num_tokens = std::ssize(texts[text]);
    int64_t scored = 1;  // nothing predicts the first token
    for (int64_t begin = 0; scored < num_tokens; begin += sizes.stride) {
      const int64_t end = std::min(num_tokens, begin + sizes.context);
      windows.push_back({text, begin, end, scored});
      scored = end;
    }
  }
  return windows;
}

Texts tokens_of_texts(const PerplexityOptions& options, const std::filesystem::path& model) {
  const Tokenizer tokenizer = load_tokenizer(model);
  Texts texts;
  TextFile file(options.text);
  size_t most = 0;
  while (const auto text = file.next()) {
    texts.push_back(tokenizer.encode(*text));
    most = std::max(most, texts.back().size());
  }
  if (most >= 2) return texts;
  throw Error(
      fmt::format("{}: the text has {} tokens; expected 2 or more.", options.text.string(), most));
}

// Mean and variance of log-probabilities that come one by one (Welford's way).
class LogprobMean {
 public:
  void add(double logprob) {
    ++count_;
    const double difference = logprob - mean_;
    mean_ += difference / static_cast<double>(count_);
    squares_ += difference * (logprob - mean_);
  }
  void report(PerplexityResult& result) const {
    const auto count = static_cast<double>(count_);
    result.num_scored = count_;
    result.mean_logprob = mean_;
    result.perplexity = std::exp(-mean_);
    // That of the mean, times the slope of exp().
    const double variance = count_ > 1 ? squares_ / (count - 1) : 0;
    result.standard_error = result.perplexity * std::sqrt(variance / count);
  }

 private:
  int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // of the differences from the mean
};

// Gives windows to the engine and takes their log-probabilities.
class Scorer {
 public:
  Scorer(const PerplexityOptions& options, EngineConfig config, const Texts& texts,
         const std::vector<Window>& windows)
      : options_(options), texts_(texts), windows_(windows), llm_(std::move(config)) {
    llm_.set_step_callback(
        [this](size_t done, size_t, const EngineStats&) { return goes_on(done); });
  }

  // False where on_window ended it.
  bool score(size_t at_once) {
    for (; first_ < windows_.size(); first_ += at_once) {
      const auto batch =
          std::span(windows_).subspan(first_, std::min(at_once, windows_.size() - first_));
      if (!score_batch(batch)) return false;
    }
    return true;
  }
  const LogprobMean& mean() const { return mean_; }

 private:
  bool goes_on(size_t done_of_batch) {
    is_ended_ = is_ended_ || (options_.on_window &&
                              !options_.on_window(static_cast<int64_t>(first_ + done_of_batch),
                                                  std::ssize(windows_)));
    return !is_ended_;
  }

  bool score_batch(std::span<const Window> windows) {
    std::vector<Prompt> prompts;
    for (const Window& window : windows) {
      const auto ids = texts_[window.text].begin();
      prompts.emplace_back(std::vector<int32_t>(ids + window.begin, ids + window.end));
    }
    const SamplingParams params{
        .temperature = 0, .max_tokens = 1, .ignore_eos = true, .prompt_logprobs = 0};
    const std::vector<RequestOutput> outputs = llm_.generate(prompts, params);
    if (is_ended_) return false;
    for (size_t i = 0; i < windows.size(); ++i) {
      if (!outputs[i].error.empty()) throw Error(outputs[i].error);
      for (int64_t token = windows[i].first_scored; token < windows[i].end; ++token) {
        const auto place = static_cast<size_t>(token - windows[i].begin);
        mean_.add(outputs[i].prompt_logprobs[place].at(0).logprob);
      }
    }
    return true;
  }

  const PerplexityOptions& options_;
  const Texts& texts_;
  std::span<const Window> windows_;
  LLM llm_;
  size_t first_ = 0;  // window of the batch
  bool is_ended_ = false;
  LogprobMean mean_;
};

}  // namespace

std::optional<PerplexityResult> measure_perplexity(const PerplexityOptions& options) {
  const std::filesystem::path model = resolve_model(options.engine.model);
  PerplexityResult result = choose_windows(options, load_model_config(model));
  const Texts texts = tokens_of_texts(options, model);
  const std::vector<Window> windows = cut_into_windows(texts, result);

  EngineConfig config = options.engine;
  config.max_model_len = result.context + 1;
  config.enable_prefix_caching = false;
  const int64_t at_once = ceil_div(kStepsAtOnce * config.max_num_batched_tokens, result.context);
  Scorer scorer(options, std::move(config), texts, windows);
  if (!scorer.score(static_cast<size_t>(at_once))) return std::nullopt;
  scorer.mean().report(result);
  result.num_texts = std::ssize(texts);
  for (const auto& text : texts) result.num_tokens += std::ssize(text);
  result.num_windows = std::ssize(windows);
  return result;
}

}  // namespace quire
