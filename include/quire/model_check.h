#pragma once
// Whether a model folder is fit to be served: its weights, its tokenizer and chat template, and
// what it answers to a known prompt on the CPU.
//
// Thread safety: a free function of its arguments and the files.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine_config.h"
#include "quire/error.h"
#include "quire/plan.h"

namespace quire {

// A tensor and what its values are like.
struct CheckedTensor {
  TensorInfo info{};
  bool is_floating = false;  // of other types nothing below is known
  int64_t num_values = 0;
  int64_t num_nan = 0;
  int64_t num_infinite = 0;
  int64_t num_zero = 0;
  double min = 0;  // of the finite values
  double max = 0;
};

// The answer to a known prompt: greedy, on the CPU; no token ends it early.
struct KnownAnswer {
  std::string prompt{};  // a text; empty where the model has no tokenizer
  std::vector<int32_t> prompt_token_ids{};
  std::vector<int32_t> output_token_ids{};
  // Natural logarithms for each output token: the token's own, and the best of the other tokens'.
  std::vector<double> logprobs{};
  std::vector<double> runner_up_logprobs{};
};

// What a model answered before, and how far the log-probabilities of a new answer may differ.
struct ModelReference {
  KnownAnswer answer{};
  double tolerance = 0;  // > 0
};

// Processors with other vector instructions change log-probabilities by less than this, a changed
// weight by more.
inline constexpr double kReferenceTolerance = 0.01;
// The largest magnitude of a weight in a sound model.
inline constexpr double kLargestWeight = 1e4;
// The most tokens of a reference.
inline constexpr int64_t kMaxReferenceTokens = 4096;

struct ModelProblem {
  std::string part;     // "weights", "config", "tokenizer", "chat template", "run", "reference"
  std::string message;  // a sentence
};

struct ModelCheck {
  std::string folder;
  std::vector<CheckedTensor> tensors;  // in the order of the files
  int64_t weight_bytes = 0;
  int64_t vocab_size = 0;            // the model's; 0 where config.json cannot be read
  int64_t tokenizer_vocab_size = 0;  // 0 where there is none
  bool has_chat_template = false;
  std::optional<KnownAnswer> answer;  // none where the model cannot run
  std::vector<ModelProblem> problems;
};

// Reads every tensor once, then runs the model. Uses only the model, the number of threads and
// on_progress of `config`. With a reference it answers the reference's prompt, else a prompt of its
// own. Throws Error if there is no such model; other faults are problems in the result.
ModelCheck check_model(const EngineConfig& config, const std::optional<ModelReference>& reference);

}  // namespace quire
