#pragma once
// One of a request's n outputs while it is being generated: its tokens, and when it ends.
//
// It knows nothing of KV blocks or steps: the scheduler keeps those beside it.
// Thread safety: none needed; the scheduler's thread owns it.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "request/request.h"
#include "request/scheduled_batch.h"
#include "request/token_view.h"

namespace quire {

// Why a sequence ended.
struct SequenceEnd {
  FinishReason reason = FinishReason::kStop;
  // The member of SamplingParams::stop_token_ids that ended it; none for the model's own
  // end-of-sequence tokens and for a length limit.
  std::optional<int32_t> stop_token_id;
};

class Sequence {
 public:
  // `id` is never used twice in an engine's life; `index`: within the request's n.
  Sequence(SequenceId id, std::shared_ptr<const Request> request, uint32_t index);

  SequenceId id() const { return id_; }
  uint32_t index() const { return index_; }
  const std::shared_ptr<const Request>& request() const { return request_; }
  const SamplingParams& params() const { return request_->params; }

  // The prompt, then what was generated.
  TokenView tokens() const { return TokenView(request_->prompt_token_ids, output_token_ids_); }
  const std::vector<int32_t>& output_token_ids() const { return output_token_ids_; }
  int64_t num_tokens() const { return num_prompt_tokens() + num_output_tokens(); }
  int64_t num_prompt_tokens() const { return num_prompt_tokens_; }
  int64_t num_output_tokens() const { return static_cast<int64_t>(output_token_ids_.size()); }

  // The largest length, prompt and output together, that this sequence may reach.
  int64_t max_num_tokens(int64_t max_model_len) const;

  // Adds a generated token and says whether the sequence ends with it. A stop token wins over a
  // length limit, but counts only once SamplingParams::min_tokens have been generated.
  std::optional<SequenceEnd> append(int32_t token_id, std::span<const int32_t> eos_token_ids,
                                    int64_t max_model_len);

 private:
  SequenceId id_;
  std::shared_ptr<const Request> request_;
  uint32_t index_;
  int64_t num_prompt_tokens_;  // the request's, which is another part of memory
  std::vector<int32_t> output_token_ids_;
};

}  // namespace quire
