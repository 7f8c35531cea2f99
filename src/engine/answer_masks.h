#pragma once
// The outputs of constrained requests: what the sampler may choose for each, and what it chose
// means for the answer.
//
// Each output has one constraint, which follows the tokens that were sampled. It is found by its
// request's number and the tokens of the output, so a sequence that was preempted, or whose drafts
// were dropped, goes on where it was. Thread safety: any thread.
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/answer_constraint.h"
#include "request/token_masks.h"

namespace quire {

// What the newest tokens of an output mean for its answer.
struct AnswerProgress {
  size_t num_tokens = 0;  // of the newest tokens, those up to the answer's end
  bool complete = false;  // nothing can follow: the answer ends with the last of these
  bool steered = false;  // one of these was chosen for the answer to end within the limit on tokens
};

class AnswerMasks final : public TokenMasks {
 public:
  AnswerMasks(int64_t vocab_size, int64_t max_model_len, std::vector<int32_t> eos_token_ids);
  ~AnswerMasks() override;

  // Before the request's first step.
  void add(const Request& request, AnswerLanguagePtr language);
  // When the request has ended; a step in flight may still ask for its masks.
  void remove(uint64_t request_number);

  std::unique_ptr<RowMask> at(const Request& request, uint32_t index,
                              std::span<const int32_t> output, bool has_drafts) override;

  // Of the next tokens of an output, which were sampled. Each is given once, in order.
  AnswerProgress progress(const Request& request, uint32_t index,
                          std::span<const int32_t> token_ids);
  // Makes a draft as long as the constraint allows its tokens behind those that progress() was
  // given.
  void cut_draft(const Request& request, uint32_t index, std::vector<int32_t>& draft) const;
  // The tokens that have to come `num_awaited` places behind those that progress() was given, at
  // most `most`: their masks allow no other. None where the text before them has a choice, too: so
  // they are known before the awaited tokens are sampled.
  std::vector<int32_t> forced_tokens(const Request& request, uint32_t index, size_t num_awaited,
                                     size_t most) const;

 private:
  struct RequestAnswers;
  class Row;

  std::shared_ptr<RequestAnswers> find(uint64_t request_number) const;

  size_t mask_words_;
  int64_t max_model_len_;
  std::vector<int32_t> eos_token_ids_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<RequestAnswers>> requests_;
};

// The tokens that a request's answer may have, by both limits.
int64_t room_for_answer(const Request& request, int64_t max_model_len);

}  // namespace quire
