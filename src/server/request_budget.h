#pragma once
// What one request may take of the server: memory out of the account that all requests share, and
// bytes of answer. Charged before the work where it can be computed, else as the work goes.
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
  RequestBudget(std::shared_ptr<MemoryAccount> account, int64_t max_response_bytes)
      : charge_(std::move(account)), max_response_bytes_(max_response_bytes) {}

  // Takes `bytes` more, for `what` ("the prompt"). Throws ApiError: 413 where the request could
  // never have that much, 429 where the other requests leave too little now.
  void charge(int64_t bytes, std::string_view what);
  // The answer has `bytes` more, in all that it will be. Throws ApiError 400 beyond
  // max_response_bytes.
  void count_response(int64_t bytes);

  // Gives back all but `bytes`, which are at most what is charged.
  void lower_to(int64_t bytes);

  int64_t charged() const { return charge_.bytes(); }
  // Of a request that ends: whether those that ended since this was last true had so much in all
  // that the allocator should give memory back to the system.
  bool ends_much() { return charge_.ends_much(kCountedBytes, kMuchBytes); }

 private:
  // Ordinary requests do not count: the next ones use their memory again.
  static constexpr int64_t kCountedBytes = 256 << 10;
  static constexpr int64_t kMuchBytes = 32 << 20;

  MemoryCharge charge_;
  const int64_t max_response_bytes_;
  int64_t response_bytes_ = 0;
};

// Gives free memory back to the system, which the allocator would keep for what may come. Takes
// milliseconds for each GiB.
void release_free_memory();

// Estimates, from above for what clients send in earnest.

// What the body of a request takes as text and as a tree of values.
int64_t parsed_body_bytes(std::string_view body);
// What tokenising a text takes while it lasts.
int64_t tokenizing_bytes(std::string_view text);
// Token ids, of which the engine has a copy.
int64_t token_id_bytes(int64_t num_tokens);
// Log-probabilities of so many positions, each of a token and of `num_top` others.
int64_t logprob_bytes(int64_t num_positions, int num_top);
// The same as they stand in an answer.
int64_t logprob_text_bytes(int64_t num_positions, int num_top);
// An output as the formatter of a whole answer keeps it, and as it stands in the answer.
int64_t output_bytes(const RequestOutput& output);
int64_t output_text_bytes(const RequestOutput& output);

}  // namespace quire::server
