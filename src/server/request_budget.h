#pragma once
// Limits of one request: memory from the account that all requests share, and bytes of answer.
// Charged before the work where the size can be computed, else as the work goes.
//
// Thread safety: one thread at a time.
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/memory_account.h"
#include "quire/request_output.h"

namespace quire::server {

class RequestBudget {
 public:
  // `body`: what the request's body was charged while it came in, which this goes on with; null: it
  // was not charged.
  RequestBudget(std::shared_ptr<MemoryAccount> account, int64_t max_response_bytes,
                std::unique_ptr<MemoryCharge> body = nullptr)
      : charge_(body != nullptr ? std::move(body)
                                : std::make_unique<MemoryCharge>(std::move(account))),
        max_response_bytes_(max_response_bytes) {}

  // Takes `bytes` more, for `what` ("the prompt"). Throws ApiError: 413 where the request could
  // never have that much, 429 where the other requests leave too little now.
  void charge(int64_t bytes, std::string_view what);
  // Takes what parsing the body needs beyond what it was charged while it came in; throws as
  // charge(). The first call of a request's.
  void charge_body(std::string_view body);
  // The whole answer will have `bytes` more. Throws ApiError 400 beyond max_response_bytes.
  void count_response(int64_t bytes);

  // Lowers the charge to `bytes`, which are not more than it is.
  void lower_to(int64_t bytes);

  int64_t charged() const { return charge_->bytes(); }

 private:
  const std::unique_ptr<MemoryCharge> charge_;
  const int64_t max_response_bytes_;
  int64_t response_bytes_ = 0;
};

// Returns free memory, which the allocator would keep for later use, to the system. Takes
// milliseconds for each GiB.
void release_free_memory();

// Estimates; upper bounds for what clients send in earnest.

// Memory of a request's body, as text and as a tree of values.
int64_t parsed_body_bytes(std::string_view body);
// Memory that tokenising a text needs while it runs.
int64_t tokenizing_bytes(std::string_view text);
// Memory of token ids and the engine's copy of them.
int64_t token_id_bytes(int64_t num_tokens);
// Memory of log-probabilities of `num_positions` positions, each of a token and of `num_top`
// others.
int64_t logprob_bytes(int64_t num_positions, int num_top);
// The same as text in an answer.
int64_t logprob_text_bytes(int64_t num_positions, int num_top);
// Memory of an output that the formatter of a whole answer keeps, and of its text in the answer.
int64_t output_bytes(const RequestOutput& output);
int64_t output_text_bytes(const RequestOutput& output);

}  // namespace quire::server
