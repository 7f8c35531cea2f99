#include "engine/step_limits.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

// The most sequences that decode in a step.
int64_t max_decoding_of(const EngineConfig& config) {
  return ceil_div(config.max_num_seqs, config.pipeline_parallel_size);
}

}  // namespace

int64_t max_forced_drafts_of(const EngineConfig& config, bool on_gpu) {
  constexpr int64_t kMostOnCpus = 16;
  // With the newest token as many as fill the tiles of attention.
  constexpr int64_t kMostOnGpus = 7;
  // Attention's counters are for so many sequences of several tokens. And where more wait for a
  // step, one that is over sooner gains little.
  constexpr int64_t kMostSequencesOnGpus = 1024;
  if (config.skip_tokenizer_init) return 0;
  if (const auto& speculation = config.speculative_config) {
    if (speculation->synthetic_acceptance_length) return 0;
    if (!on_gpu) return kMostOnCpus;
    // One is less than is worth a step with drafts (kLeastDraftsAhead).
    return speculation->num_speculative_tokens > 1 ? speculation->num_speculative_tokens : 0;
  }
  if (!on_gpu) return kMostOnCpus;
  return config.max_num_seqs <= kMostSequencesOnGpus ? kMostOnGpus : 0;
}

int64_t max_gpu_drafts_of(const EngineConfig& config) {
  // With more rows a step takes longer for each of them.
  constexpr int64_t kMostDrafts = 256;
  constexpr int64_t kMostForcedDrafts = 64;
  if (!config.speculative_config) {
    return std::min(config.max_num_seqs * max_forced_drafts_of(config, /*on_gpu=*/true),
                    kMostForcedDrafts);
  }
  return std::min(config.max_num_seqs * config.speculative_config->num_speculative_tokens,
                  kMostDrafts);
}

int64_t max_stage_drafts_of(const EngineConfig& config) {
  constexpr int64_t kForcedDrafts = 256;
  if (!config.speculative_config) return kForcedDrafts;
  return max_decoding_of(config) * config.speculative_config->num_speculative_tokens;
}

int64_t max_step_tokens_of(const EngineConfig& config, bool on_gpu) {
  if (config.pipeline_parallel_size == 1) return config.max_num_batched_tokens;
  SchedulerConfig scheduler;
  scheduler.max_num_batched_tokens = config.max_num_batched_tokens;
  scheduler.num_stages = config.pipeline_parallel_size;
  if (on_gpu) scheduler.least_stage_chunk = kLeastStageChunkOfGpus;
  const int64_t prompts = stage_chunk(scheduler, kStageChunks * config.max_num_batched_tokens);
  const int64_t drafts = on_gpu ? max_gpu_drafts_of(config) : max_stage_drafts_of(config);
  return std::min(config.max_num_batched_tokens, prompts + max_decoding_of(config) + drafts);
}

}  // namespace quire
