#pragma once
// From logits to token ids.
//
// A row's result depends on nothing but its logits, its parameters and its history. Noise comes
// from a counter-based generator keyed by (seed, index within n, position, token id), so it needs
// no state.
//
// Order of operations, as in vLLM: the tokens that are allowed; logit_bias and the min_tokens mask;
// repetition, presence and frequency penalties; (greedy: arg max, lowest id on a tie); temperature;
// min_p; top_k; top_p; sample by the Gumbel trick: arg max of log p(i) + noise(i).
// Log-probabilities that are reported are those of the raw logits.
//
// Ties: tokens as likely as the k-th stay in top_k; top_p and reported ranks take the lower id
// first. NaN counts as -infinity, which is never sampled. A row whose greatest logit is infinite
// has no distribution to sample from: its result is kNoToken.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/no_token.h"

namespace quire::ops {

struct SamplingRow {
  float temperature = 1.0f;  // 0: greedy
  int top_k = 0;             // 0 or less: all
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t index = 0;                   // within n
  uint64_t position = 0;                // of the token to be sampled
  std::span<const int32_t> prompt_ids;  // for repetition_penalty
  std::span<const int32_t> output_ids;  // for all three penalties
  std::span<const std::pair<int32_t, float>> logit_bias;
  std::span<const int32_t> masked_ids;  // never sampled in this step (min_tokens)
  // Bit t % 32 of word t / 32 is set if token t may be sampled; empty: all may.
  std::span<const uint32_t> allowed;
  int num_logprobs = -1;  // -1: none; else the sampled token's and that many of the best
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0.0f;  // natural logarithm
  int rank = 0;          // 1: the most likely token
};

struct SampledToken {
  int32_t token_id = 0;
  // The sampled token first, then the best in order of probability; empty if num_logprobs is -1, or
  // there is no token.
  std::vector<TokenLogprob> logprobs;
};

// logits float32[R, V], V >= 1, changed in place unless the row has `allowed`; rows.size() ==
// out.size() == R. All ids in rows are in [0, V).
void sample(Stream& stream, const Tensor& logits, std::span<const SamplingRow> rows,
            std::span<SampledToken> out);

// Log-probabilities of given tokens, for prompt_logprobs: logits float32[R, V], unchanged; out[r]
// has token_ids[r], which is in [0, V), first, then the num_logprobs best.
void token_logprobs(Stream& stream, const Tensor& logits, std::span<const int32_t> token_ids,
                    int num_logprobs, std::span<std::vector<TokenLogprob>> out);

}  // namespace quire::ops
