#pragma once
// Speculative decoding: guesses (drafts) of the tokens that follow are verified in one step
// together with the newest token. A draft is kept only if the model samples this very token in its
// place. So tokens, log-probabilities and texts are the same as without drafts.
//
// Names, meanings and defaults are vLLM's where it has them. Thread safety: a plain value.
#include <cstdint>
#include <optional>
#include <string>

namespace quire {

inline constexpr int kMaxSpeculativeTokens = 16;

struct SpeculativeConfig {
  // Where drafts come from. "ngram": what followed the newest tokens earlier in the sequence.
  // "suffix": the most frequent continuation, there and in what earlier requests of the same cache
  // salt were answered. "draft_model": what a smaller model of the same vocabulary would answer.
  // "eagle", "eagle3": what a head makes of the model's hidden states, which was trained for the
  // model.
  std::string method{};
  // The most drafts of a sequence in a step, 1 to kMaxSpeculativeTokens. With `adaptive` there are
  // fewer, or none, where drafts cost more than they bring.
  int num_speculative_tokens = 8;
  // False, for measurements: as many drafts as the method gives, whatever they cost.
  bool adaptive = true;
  // Measurements without a good drafter: drafts are kept so often that a chunk with
  // num_speculative_tokens of them brings this many tokens on average, 1 to one more than these, by
  // noise and whatever the model samples. All the work is done, and answers are wrong. "ngram" and
  // "suffix" then draft any tokens.
  std::optional<double> synthetic_acceptance_length{};

  // "ngram": how many of the newest tokens must have occurred earlier, 1 to 32; the longest match
  // is taken. If one is given, the other is the same; if none, both are 5.
  std::optional<int> prompt_lookup_min{};
  std::optional<int> prompt_lookup_max{};

  // "suffix": tokens of the longest known text, match and drafts together, 2 to 256.
  int suffix_decoding_max_tree_depth = 24;
  // "suffix": how many earlier requests are kept, 0 to 1,000,000. 0: a sequence sees only itself.
  int64_t suffix_decoding_max_cached_requests = 10000;
  // "suffix": drafts for each token of the match, above 0 and up to 100.
  double suffix_decoding_max_spec_factor = 1.0;
  // "suffix": how often a draft, with those before it, must have followed the match, 0 to 1.
  double suffix_decoding_min_token_prob = 0.1;

  // "draft_model": a model as EngineConfig::model names one, with the vocabulary of the model that
  // it drafts for. "eagle", "eagle3": a head of that kind. It runs in the same ranks.
  std::string model{};
  // "draft_model", "eagle", "eagle3": as EngineConfig::quantization, of the draft model's weights.
  std::string quantization = "none";
  // "draft_model", "eagle", "eagle3": the ranks that share it: tensor_parallel_size, also if none
  // is given.
  std::optional<int> draft_tensor_parallel_size{};
};

}  // namespace quire
