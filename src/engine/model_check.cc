#include "quire/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "base/thread_pool.h"
#include "engine/model_check_reference.h"
#include "engine/model_check_text.h"
#include "hub/model_path.h"
#include "loader/checkpoint.h"
#include "loader/model_config.h"
#include "loader/tensor_statistics.h"
#include "quire/llm.h"
#include "quire/model_text.h"

namespace quire {
namespace {

constexpr int64_t kAnswerTokens = 16;
constexpr int32_t kPromptIdsWithoutTokenizer = 8;

// Facts about a model that the check learns on the way.
class Checker {
 public:
  Checker(const EngineConfig& config, const std::optional<ModelReference>& reference)
      : config_(config), reference_(reference), folder_(resolve_model(config.model)) {
    result_.folder = folder_.string();
  }

  ModelCheck run();

 private:
  // Runs `work`; an exception becomes a problem of `part`.
  void attempt(const char* part, const std::function<void()>& work);
  void add_problems(const char* part, std::vector<std::string> messages);
  void check_weights();
  void check_texts();
  void check_answer();
  std::vector<int32_t> prompt_ids(KnownAnswer& answer) const;
  void answer_prompt(KnownAnswer& answer, int64_t num_tokens);

  const EngineConfig& config_;
  const std::optional<ModelReference>& reference_;
  std::filesystem::path folder_;
  std::optional<ModelConfig> model_;
  std::optional<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_template_;
  ModelCheck result_;
};

void Checker::attempt(const char* part, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    // Two parts may fail for one reason: a tensor that the weights lack also fails the run.
    const std::string message = error.what();
    const auto is_told = [&](const ModelProblem& problem) { return problem.message == message; };
    if (std::ranges::any_of(result_.problems, is_told)) return;
    result_.problems.push_back({part, message});
  }
}

void Checker::add_problems(const char* part, std::vector<std::string> messages) {
  for (std::string& message : messages) result_.problems.push_back({part, std::move(message)});
}

// The fault of a tensor; empty if there is none.
std::string problem_of(const CheckedTensor& tensor) {
  const auto of_all = [&](int64_t count, const char* what) {
    return fmt::format("{} of {} values are {}", count, tensor.num_values, what);
  };
  std::string problem;
  if (tensor.num_nan > 0) {
    problem = of_all(tensor.num_nan, "NaN");
  } else if (tensor.num_infinite > 0) {
    problem = of_all(tensor.num_infinite, "infinite");
  } else if (tensor.num_values > 0 && tensor.num_zero == tensor.num_values &&
             !tensor.info.name.ends_with("bias")) {
    problem = fmt::format("all {} values are zero", tensor.num_values);
  } else if (std::max(-tensor.min, tensor.max) > kLargestWeight) {
    problem = fmt::format("values reach from {:g} to {:g}; expected magnitudes up to {:g}",
                          tensor.min, tensor.max, kLargestWeight);
  } else {
    return "";
  }
  const std::filesystem::path file(tensor.info.file);
  return fmt::format("{} ({}): {}.", tensor.info.name, file.filename().string(), problem);
}

// What is said of an output layer in the checkpoint that is not used, as the config ties it to the
// embedding; empty where it is a copy of that.
std::string problem_of_tied_output(const Checkpoint& checkpoint) {
  const CheckpointTensor* const output = checkpoint.find("lm_head.weight");
  const CheckpointTensor* const embedding = checkpoint.find("model.embed_tokens.weight");
  if (output == nullptr || embedding == nullptr) return "";
  const bool is_copy = output->dtype == embedding->dtype && output->shape == embedding->shape &&
                       std::memcmp(output->data, embedding->data, output->bytes) == 0;
  if (is_copy) return "";
  return fmt::format(
      "{} ({}): it is not used, as tie_word_embeddings is true in config.json; expected a copy of "
      "{}, or tie_word_embeddings false.",
      output->name, std::filesystem::path(output->file).filename().string(), embedding->name);
}

void Checker::check_weights() {
  const Checkpoint checkpoint = Checkpoint::open(folder_);
  ThreadPool pool(config_.threads > 0 ? config_.threads : cpu_topology().num_physical_cores);
  const auto total = static_cast<int64_t>(checkpoint.total_bytes());
  int64_t done = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const TensorStatistics found = statistics_of(tensor, pool);
    result_.tensors.push_back({.info = {tensor.name, tensor.dtype, tensor.shape, tensor.file},
                               .is_floating = found.is_floating,
                               .num_values = found.num_values,
                               .num_nan = found.num_nan,
                               .num_infinite = found.num_infinite,
                               .num_zero = found.num_zero,
                               .min = found.min,
                               .max = found.max});
    const std::string problem = problem_of(result_.tensors.back());
    if (!problem.empty()) result_.problems.push_back({"weights", problem});
    checkpoint.release(tensor);
    done += static_cast<int64_t>(tensor.bytes);
    if (config_.on_progress) config_.on_progress("Reading weights", done, total);
  }
  result_.weight_bytes = total;
  if (model_ && model_->tie_word_embeddings) {
    const std::string problem = problem_of_tied_output(checkpoint);
    if (!problem.empty()) result_.problems.push_back({"weights", problem});
  }
}

void Checker::check_texts() {
  const GenerationConfig generation = load_generation_config(folder_);
  if (has_tokenizer(folder_)) {
    attempt("tokenizer", [&] {
      tokenizer_ = load_tokenizer(folder_);
      result_.tokenizer_vocab_size = tokenizer_->vocab_size();
      add_problems("tokenizer",
                   check_tokenizer(*tokenizer_, generation.eos_token_ids, model_->vocab_size));
    });
  }
  result_.has_chat_template = has_chat_template(folder_);
  if (!has_tokenizer(folder_) && std::filesystem::is_directory(folder_) &&
      (result_.has_chat_template || std::filesystem::exists(folder_ / "tokenizer_config.json"))) {
    add_problems("tokenizer",
                 {fmt::format("{}: there is no tokenizer.json beside the chat template or "
                              "tokenizer_config.json; expected it, as no text can be read or "
                              "written without it.",
                              folder_.string())});
  }
  if (!result_.has_chat_template) return;
  attempt("chat template", [&] {
    ChatTemplate chat_template = load_chat_template(folder_);
    if (tokenizer_) {
      add_problems("chat template", check_chat_template(chat_template, *tokenizer_));
    }
    chat_template_ = std::move(chat_template);
  });
}

std::vector<int32_t> Checker::prompt_ids(KnownAnswer& answer) const {
  if (!tokenizer_) {
    std::vector<int32_t> ids;
    for (int32_t id = 1; id <= kPromptIdsWithoutTokenizer; ++id) {
      ids.push_back(static_cast<int32_t>(id % model_->vocab_size));
    }
    return ids;
  }
  answer.prompt = known_prompt(chat_template_ ? &*chat_template_ : nullptr);
  return tokenizer_->encode(answer.prompt, !chat_template_);
}

void Checker::answer_prompt(KnownAnswer& answer, int64_t num_tokens) {
  EngineConfig config = config_;
  config.model = folder_.string();
  config.device = "cpu";
  config.skip_tokenizer_init = true;
  config.max_num_seqs = 1;
  const auto length = static_cast<int64_t>(answer.prompt_token_ids.size()) + num_tokens;
  config.max_model_len = std::min(std::max<int64_t>(length, 2), model_->max_model_len());
  config.max_num_batched_tokens = length;
  config.kv_cache_memory_bytes.reset();
  config.num_gpu_blocks_override = length / config.block_size + 2;
  LLM llm(config);
  const SamplingParams params{
      .temperature = 0, .max_tokens = num_tokens, .ignore_eos = true, .logprobs = 2};
  const RequestOutput output = llm.generate({answer.prompt_token_ids}, params).front();
  if (!output.error.empty()) throw Error(output.error);
  const CompletionOutput& completion = output.outputs.front();
  answer.output_token_ids = completion.token_ids;
  for (const PositionLogprobs& position : completion.logprobs) {
    answer.logprobs.push_back(position.at(0).logprob);
    const auto other = std::ranges::find_if(position, [&](const Logprob& logprob) {
      return logprob.token_id != position.front().token_id;
    });
    answer.runner_up_logprobs.push_back(other == position.end() ? answer.logprobs.back()
                                                                : other->logprob);
  }
}

void Checker::check_answer() {
  KnownAnswer answer;
  attempt("run", [&] {
    answer.prompt_token_ids = prompt_ids(answer);
    int64_t num_tokens = kAnswerTokens;
    if (reference_) {
      add_problems("reference", compare_prompts(answer, reference_->answer));
      answer.prompt = reference_->answer.prompt;
      answer.prompt_token_ids = reference_->answer.prompt_token_ids;
      num_tokens = std::ssize(reference_->answer.output_token_ids);
    }
    answer_prompt(answer, num_tokens);
    if (reference_) add_problems("reference", compare_answers(answer, *reference_));
    result_.answer = std::move(answer);
  });
}

ModelCheck Checker::run() {
  attempt("config", [&] {
    model_ = load_model_config(folder_);
    result_.vocab_size = model_->vocab_size;
  });
  attempt("weights", [&] { check_weights(); });
  if (model_) {
    attempt("config", [&] { check_texts(); });
    check_answer();
  }
  return std::move(result_);
}

}  // namespace

ModelCheck check_model(const EngineConfig& config, const std::optional<ModelReference>& reference) {
  return Checker(config, reference).run();
}

}  // namespace quire
