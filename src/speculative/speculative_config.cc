#include <fmt/format.h>

#include <string>

#include "quire/error.h"
#include "speculative/ngram_proposer.h"
#include "speculative/proposer.h"
#include "speculative/runner_proposer.h"
#include "speculative/suffix_proposer.h"
#include "speculative/synthetic_acceptance.h"

namespace quire {
namespace {

constexpr int kMaxNgram = 32;
constexpr int kMaxTreeDepth = 256;
constexpr int64_t kMaxCachedRequests = 1'000'000;
constexpr double kMaxSpecFactor = 100;

void require_field(bool ok, const char* field, const std::string& value, const char* expected) {
  if (ok) return;
  throw Error(fmt::format("--speculative-config: {} is {}; expected {}.", field, value, expected));
}

void check_method(const std::string& method) {
  for (const char* known : {"ngram", "suffix", "draft_model", "eagle", "eagle3"}) {
    if (method == known) return;
  }
  throw Error(
      fmt::format("--speculative-config: method is \"{}\"; expected \"ngram\", \"suffix\", "
                  "\"draft_model\", \"eagle\" or \"eagle3\", the methods that quire takes.",
                  method));
}

void check_ngram(const SpeculativeConfig& config) {
  const NgramLengths lengths = ngram_lengths(config);
  const auto in_range = [](int length) { return length >= 1 && length <= kMaxNgram; };
  require_field(in_range(lengths.min), "prompt_lookup_min", std::to_string(lengths.min), "1 to 32");
  require_field(in_range(lengths.max), "prompt_lookup_max", std::to_string(lengths.max), "1 to 32");
  require_field(lengths.min <= lengths.max, "prompt_lookup_min", std::to_string(lengths.min),
                fmt::format("at most prompt_lookup_max, which is {}", lengths.max).c_str());
}

void check_suffix(const SpeculativeConfig& config) {
  const int depth = config.suffix_decoding_max_tree_depth;
  require_field(depth >= 2 && depth <= kMaxTreeDepth, "suffix_decoding_max_tree_depth",
                std::to_string(depth), "2 to 256");
  const int64_t requests = config.suffix_decoding_max_cached_requests;
  require_field(requests >= 0 && requests <= kMaxCachedRequests,
                "suffix_decoding_max_cached_requests", std::to_string(requests), "0 to 1000000");
  const double factor = config.suffix_decoding_max_spec_factor;
  require_field(factor > 0 && factor <= kMaxSpecFactor, "suffix_decoding_max_spec_factor",
                fmt::format("{}", factor), "a number above 0 and up to 100");
  const double least = config.suffix_decoding_min_token_prob;
  require_field(least >= 0 && least <= 1, "suffix_decoding_min_token_prob",
                fmt::format("{}", least), "a number from 0 to 1");
}

void check_draft_model(const SpeculativeConfig& config) {
  const std::string& to = config.quantization;
  require_field(to == "none" || to == "fp8" || to == "int8" || to == "int4", "quantization",
                fmt::format("\"{}\"", to), "none, fp8, int8 or int4");
  if (drafts_with_model(config)) {
    require_field(!config.model.empty(), "model", "missing",
                  drafts_with_head(config)
                      ? "a folder or a name, of a head for the model"
                      : "a folder, a GGUF file or a name, of a smaller model with the same "
                        "vocabulary");
  } else {
    require_field(
        config.model.empty(), "model", fmt::format("\"{}\"", config.model),
        fmt::format("none with method \"{}\"; \"draft_model\", \"eagle\" and \"eagle3\" take one",
                    config.method)
            .c_str());
    const auto refuse = [&config](bool ok, const char* field, const std::string& value) {
      require_field(
          ok, field, value,
          fmt::format("none with method \"{}\", which drafts without a model", config.method)
              .c_str());
    };
    refuse(config.quantization == "none", "quantization",
           fmt::format("\"{}\"", config.quantization));
    refuse(!config.draft_tensor_parallel_size, "draft_tensor_parallel_size",
           std::to_string(config.draft_tensor_parallel_size.value_or(0)));
  }
}

void check_synthetic(const SpeculativeConfig& config) {
  if (!config.synthetic_acceptance_length) return;
  const double length = *config.synthetic_acceptance_length;
  require_field(length >= 1 && length <= config.num_speculative_tokens + 1,
                "synthetic_acceptance_length", fmt::format("{}", length),
                fmt::format("a number from 1 to {}, one more than num_speculative_tokens",
                            config.num_speculative_tokens + 1)
                    .c_str());
}

}  // namespace

bool drafts_with_model(const SpeculativeConfig& config) {
  return config.method == "draft_model" || drafts_with_head(config);
}

bool drafts_with_head(const SpeculativeConfig& config) {
  return config.method == "eagle" || config.method == "eagle3";
}

NgramLengths ngram_lengths(const SpeculativeConfig& config) {
  constexpr int kUsual = 5;
  const std::optional<int>& min = config.prompt_lookup_min;
  const std::optional<int>& max = config.prompt_lookup_max;
  return {.min = min.value_or(max.value_or(kUsual)), .max = max.value_or(min.value_or(kUsual))};
}

void check_speculative_config(const SpeculativeConfig& config) {
  check_method(config.method);
  const int most = config.num_speculative_tokens;
  require_field(most >= 1 && most <= kMaxSpeculativeTokens, "num_speculative_tokens",
                std::to_string(most), "1 to 16");
  check_synthetic(config);
  check_ngram(config);
  check_suffix(config);
  check_draft_model(config);
}

std::unique_ptr<Proposer> make_proposer(const SpeculativeConfig& config) {
  if (config.synthetic_acceptance_length && !drafts_with_model(config)) {
    return std::make_unique<SyntheticProposer>();
  }
  if (config.method == "suffix") return std::make_unique<SuffixProposer>(config);
  if (drafts_with_model(config)) return std::make_unique<RunnerProposer>();
  return std::make_unique<NgramProposer>(ngram_lengths(config));
}

}  // namespace quire
