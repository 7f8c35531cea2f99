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

Sequence::Sequence(SequenceId id, std::shared_ptr<const Request> request, uint32_t index)
    : id_(id),
      request_(std::move(request)),
      index_(index),
      num_prompt_tokens_(request_ == nullptr ? 0 : request_->num_prompt_tokens()) {
  check(num_prompt_tokens_ > 0, "a sequence needs a prompt");
}

int64_t Sequence::max_num_tokens(int64_t max_model_len) const {
  const int64_t room = max_model_len - num_prompt_tokens();
  return num_prompt_tokens() + std::min(params().max_tokens.value_or(room), room);
}

std::optional<SequenceEnd> Sequence::append(int32_t token_id,
                                            std::span<const int32_t> eos_token_ids,
                                            int64_t max_model_len) {
  check(token_id >= 0, "a sampled token has an id");
  output_token_ids_.push_back(token_id);
  if (num_output_tokens() >= params().min_tokens) {
    if (!params().ignore_eos && contains(eos_token_ids, token_id)) {
      return SequenceEnd{FinishReason::kStop, std::nullopt};
    }
    if (contains(params().stop_token_ids, token_id)) {
      return SequenceEnd{FinishReason::kStop, token_id};
    }
  }
  if (num_tokens() >= max_num_tokens(max_model_len)) {
    return SequenceEnd{FinishReason::kLength, std::nullopt};
  }
  return std::nullopt;
}

}  // namespace quire
