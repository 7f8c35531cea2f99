#pragma once
// One of a request's n outputs while it is being generated: its tokens, and when it ends.
//
// It knows nothing of KV blocks or steps: the scheduler keeps those beside it.
// Thread safety: none needed; the scheduler's thread owns it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/request_output.h"
#include "quire/sampling_params.h"
#include "request/scheduled_batch.h"

namespace quire {

// What the engine hands to the scheduler.
struct SequenceSpec {
  SequenceId id = 0;                             // never used twice in an engine's life
  std::vector<int32_t> prompt_token_ids;         // at least one, fewer than max_model_len
  std::shared_ptr<const SamplingParams> params;  // validated
  uint64_t seed = 0;                             // resolved: SamplingParams' or drawn
  uint32_t index = 0;                            // within n
  std::string cache_salt;  // cached prefixes are shared only between sequences of equal salt
};

// Why a sequence ended.
struct SequenceEnd {
  FinishReason reason = FinishReason::kStop;
  // The member of SamplingParams::stop_token_ids that ended it; none for the model's own
  // end-of-sequence tokens and for a length limit.
  std::optional<int32_t> stop_token_id;
};

class Sequence {
 public:
  // Requires a prompt and params.
  explicit Sequence(SequenceSpec spec);

  SequenceId id() const { return id_; }
  uint64_t seed() const { return seed_; }
  uint32_t index() const { return index_; }
  const std::string& cache_salt() const { return cache_salt_; }
  const SamplingParams& params() const { return *params_; }
  const std::shared_ptr<const SamplingParams>& shared_params() const { return params_; }

  // The prompt, then what was generated.
  const std::vector<int32_t>& token_ids() const { return token_ids_; }
  int64_t num_tokens() const { return static_cast<int64_t>(token_ids_.size()); }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_output_tokens() const { return num_tokens() - num_prompt_tokens_; }

  // The most tokens, prompt and output together, that this sequence may come to have.
  int64_t max_num_tokens(int64_t max_model_len) const;

  // Adds a generated token and says whether the sequence ends with it. A stop token counts before a
  // length limit, and only once SamplingParams::min_tokens have been generated.
  std::optional<SequenceEnd> append(int32_t token_id, std::span<const int32_t> eos_token_ids,
                                    int64_t max_model_len);

 private:
  SequenceId id_;
  std::vector<int32_t> token_ids_;
  int64_t num_prompt_tokens_;
  std::shared_ptr<const SamplingParams> params_;
  uint64_t seed_;
  uint32_t index_;
  std::string cache_salt_;
};

}  // namespace quire
