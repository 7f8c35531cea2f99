#pragma once
// How well a model predicts a text: the exponential of the mean negative log-probability of its
// tokens.
//
// A text is cut into windows of `context` tokens that begin `stride` tokens apart. Each token but
// the first is scored once, in the first window that contains it. So it is predicted from at least
// context - stride tokens before it, or from all that the text has there. Thread safety: free
// functions of their arguments and the files.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "quire/engine_config.h"
#include "quire/error.h"

namespace quire {

struct PerplexityOptions {
  EngineConfig engine{};
  // A file in UTF-8: one text, or, with the extension .jsonl, in each line one as {"text": ...}.
  std::filesystem::path text{};
  std::optional<int64_t> context{};  // >= 2; none: 1024, or what the model can do
  std::optional<int64_t> stride{};   // 1 to context - 1; none: half of it
  // Called with the number of windows that are done and of all. Returning false ends the
  // measurement.
  std::function<bool(int64_t done, int64_t total)> on_window{};
};

struct PerplexityResult {
  int64_t num_texts = 0;
  int64_t num_tokens = 0;  // of all texts
  int64_t num_scored = 0;  // all but the first token of each text
  int64_t num_windows = 0;
  int64_t context = 0;
  int64_t stride = 0;
  double mean_logprob = 0;  // natural
  double perplexity = 0;
  // The perplexity's standard error, as if tokens were independent.
  double standard_error = 0;
};

// Nothing where on_window ended it. Throws Error as LLM does, where no text has two tokens, and for
// a context or stride out of range.
std::optional<PerplexityResult> measure_perplexity(const PerplexityOptions& options);

}  // namespace quire
