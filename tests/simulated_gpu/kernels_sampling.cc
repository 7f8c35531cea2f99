// From logits to token ids, as ops/sampling.h defines it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/thread_pool.h"
#include "core/stream.h"
#include "ops/cpu/sampling_cpu.h"
#include "ops/sampling.h"
#include "ops/sampling_noise.h"
#include "simulated_gpu/kernels.h"

namespace quire::simulated {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Candidate {
  int32_t id;
  float logit;
  float log_weight;  // of its probability, up to a constant
};

void adjust_row(const ops::CudaAdjustLogits& args, int64_t row) {
  const int64_t seq = args.row_seqs[row];
  std::vector<int32_t> history;
  for (int32_t t = 0; t < args.history_lens[row]; ++t) {
    const int64_t block = args.block_tables[seq * args.table_width + t / args.block_size];
    history.push_back(args.cached_ids[block * args.block_size + t % args.block_size]);
  }
  std::vector<std::pair<int32_t, float>> biases;
  for (int32_t i = args.bias_start[row]; i < args.bias_start[row + 1]; ++i) {
    biases.emplace_back(args.biases[i].id, args.biases[i].bias);
  }
  const auto num_prompt_tokens = static_cast<size_t>(args.num_prompt_tokens[row]);
  ops::SamplingRow params;
  params.repetition_penalty = args.repetition_penalty[row];
  params.presence_penalty = args.presence_penalty[row];
  params.frequency_penalty = args.frequency_penalty[row];
  params.prompt_ids = std::span(history).first(std::min(num_prompt_tokens, history.size()));
  params.output_ids = std::span(history).subspan(params.prompt_ids.size());
  params.logit_bias = biases;
  ops::RowSampler().adjust({args.logits + row * args.stride, static_cast<size_t>(args.vocab)},
                           params);
}

bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The k most likely candidates, and those that are as likely as the last of them.
void keep_top_k(std::vector<Candidate>& candidates, size_t k) {
  const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(k - 1);
  std::ranges::nth_element(candidates, last, is_likelier);
  std::erase_if(candidates, [least = last->logit](const Candidate& c) { return c.logit < least; });
}

// The fewest of the most likely candidates, which are in that order, whose weights reach top_p of
// all.
void keep_top_p(std::vector<Candidate>& candidates, float top_p) {
  double total = 0;
  for (const Candidate& c : candidates) total += std::exp(double{c.log_weight});
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.size() && sum < double{top_p} * total) {
    sum += std::exp(double{candidates[kept].log_weight});
    ++kept;
  }
  candidates.resize(kept);
}

// Null: every token may come.
const uint32_t* mask_of(const ops::CudaSample& args, int64_t row) {
  const int32_t mask_row = args.mask_rows == nullptr ? -1 : args.mask_rows[row];
  return mask_row < 0 ? nullptr : args.masks + mask_row * ceil_div(args.vocab, 32);
}

bool allows(const uint32_t* mask, int32_t id) {
  return (mask[id / 32] >> (id % 32) & 1u) != 0;
}

int32_t sample_row(const ops::CudaSample& args, int64_t row) {
  std::vector<float> logits(args.logits + row * args.stride,
                            args.logits + row * args.stride + args.vocab);
  const uint32_t* const mask = mask_of(args, row);
  if (args.kept_ids != nullptr) {
    const int32_t kept = args.kept_ids[row];
    if (mask == nullptr || kept < 0 || allows(mask, kept)) return kept;
  }
  for (size_t id = 0; id < logits.size(); ++id) {
    const bool may_come = mask == nullptr || allows(mask, static_cast<int32_t>(id));
    if (std::isnan(logits[id]) || !may_come) logits[id] = -kInfinity;
  }
  const auto best = std::max_element(logits.begin(), logits.end());
  const float temperature = args.temperature[row];
  if (!std::isfinite(*best)) return ops::kNoToken;
  if (temperature == 0.0f) return static_cast<int32_t>(best - logits.begin());

  const float scale = std::min(1.0f / temperature, 1e30f);
  const float min_p = args.min_p[row];
  const float least = min_p > 0.0f ? *best + std::log(min_p) * temperature : -kInfinity;
  std::vector<Candidate> candidates;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] < least || logits[id] == -kInfinity) continue;
    candidates.push_back({static_cast<int32_t>(id), logits[id], (logits[id] - *best) * scale});
  }
  const auto k = static_cast<size_t>(std::max(args.top_k[row], 0));
  if (k > 0 && k < candidates.size()) keep_top_k(candidates, k);
  if (args.top_p[row] < 1.0f) {
    std::ranges::sort(candidates, is_likelier);
    keep_top_p(candidates, args.top_p[row]);
  }

  const ops::NoiseKey key{args.noise_keys[2 * row], args.noise_keys[2 * row + 1]};
  const Candidate* sampled = nullptr;
  double best_score = 0;
  for (const Candidate& c : candidates) {
    const double score =
        double{c.log_weight} + ops::gumbel_noise(ops::noise_bits(key, static_cast<uint32_t>(c.id)));
    if (sampled != nullptr && score < best_score) continue;
    if (sampled != nullptr && score == best_score && is_likelier(*sampled, c)) continue;
    sampled = &c;
    best_score = score;
  }
  return sampled->id;
}

}  // namespace

void adjust_logits(const ops::CudaAdjustLogits& args) {
  for (int64_t row = 0; row < args.rows; ++row) adjust_row(args, row);
}

void sample(const ops::CudaSample& args) {
  for (int64_t row = 0; row < args.rows; ++row) args.out[row] = sample_row(args, row);
}

void logprobs(const ops::CudaLogprobs& args) {
  ThreadPool pool(1);
  Stream stream(pool);
  for (int64_t row = 0; row < args.rows; ++row) {
    std::vector<float> logits(args.logits + row * args.stride,
                              args.logits + row * args.stride + args.vocab);
    const int32_t token_id = std::max(args.token_ids[row], 0);
    std::vector<ops::TokenLogprob> found;
    ops::token_logprobs(stream, Tensor(logits.data(), DType::kFloat32, {1, args.vocab}),
                        std::span(&token_id, 1), args.num_top, std::span(&found, 1));
    args.token_logprobs[row] = found[0].logprob;
    args.token_ranks[row] = found[0].rank;
    for (int32_t i = 0; i < args.num_top; ++i) {
      const auto at = static_cast<size_t>(i) + 1;
      const bool exists = at < found.size();
      args.top_ids[row * args.num_top + i] = exists ? found[at].token_id : -1;
      args.top_logprobs[row * args.num_top + i] = exists ? found[at].logprob : -kInfinity;
    }
  }
}

}  // namespace quire::simulated
