#include "request/sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

bool contains(std::span<const int32_t> ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Sequence::Sequence(SequenceSpec spec)
    : id_(spec.id),
      token_ids_(std::move(spec.prompt_token_ids)),
      num_prompt_tokens_(static_cast<int64_t>(token_ids_.size())),
      params_(std::move(spec.params)),
      seed_(spec.seed),
      index_(spec.index),
      cache_salt_(std::move(spec.cache_salt)) {
  check(num_prompt_tokens_ > 0, "a sequence needs a prompt");
  check(params_ != nullptr, "a sequence needs sampling parameters");
}

int64_t Sequence::max_num_tokens(int64_t max_model_len) const {
  const int64_t room = max_model_len - num_prompt_tokens_;
  return num_prompt_tokens_ + std::min(params_->max_tokens.value_or(room), room);
}

std::optional<SequenceEnd> Sequence::append(int32_t token_id,
                                            std::span<const int32_t> eos_token_ids,
                                            int64_t max_model_len) {
  check(token_id >= 0, "a sampled token has an id");
  token_ids_.push_back(token_id);
  if (num_output_tokens() >= params_->min_tokens) {
    if (!params_->ignore_eos && contains(eos_token_ids, token_id)) {
      return SequenceEnd{FinishReason::kStop, std::nullopt};
    }
    if (contains(params_->stop_token_ids, token_id)) {
      return SequenceEnd{FinishReason::kStop, token_id};
    }
  }
  if (num_tokens() >= max_num_tokens(max_model_len)) {
    return SequenceEnd{FinishReason::kLength, std::nullopt};
  }
  return std::nullopt;
}

}  // namespace quire
