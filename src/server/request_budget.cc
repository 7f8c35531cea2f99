#include "server/request_budget.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>

#include "base/check.h"
#include "server/api/api_error.h"
#include "server/api/json_body.h"

namespace quire::server {
namespace {

constexpr int64_t kRetryAfterSeconds = 1;  // most requests are over by then

double mebibytes(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

}  // namespace

void RequestBudget::charge(int64_t bytes, std::string_view what) {
  const int64_t total = charge_->bytes() + bytes;
  if (total > charge_->account().limit()) {
    throw request_too_large(fmt::format(
        "The request would take {:.1f} MiB of memory with {}; the server has {:.1f} MiB "
        "for all requests (--max-server-memory).",
        mebibytes(total), what, mebibytes(charge_->account().limit())));
  }
  if (!charge_->add(bytes)) {
    throw rate_limited(
        fmt::format("The request would take {:.1f} MiB of memory with {}, and other requests have "
                    "{:.1f} of the {:.1f} MiB that the server has for all (--max-server-memory); "
                    "try again later.",
                    mebibytes(total), what, mebibytes(charge_->account().used() - charge_->bytes()),
                    mebibytes(charge_->account().limit())),
        kRetryAfterSeconds);
  }
}

void RequestBudget::charge_body(std::string_view body) {
  charge(std::max<int64_t>(0, parsed_body_bytes(body) - charged()), "its body");
}

void RequestBudget::count_response(int64_t bytes) {
  response_bytes_ += bytes;
  if (response_bytes_ <= max_response_bytes_) return;
  throw invalid_request(fmt::format("The answer would have about {} bytes; expected at most {} "
                                    "(--max-response-bytes): ask for less at once.",
                                    response_bytes_, max_response_bytes_),
                        {}, "response_too_large");
}

void RequestBudget::lower_to(int64_t bytes) {
  check(bytes <= charge_->bytes() && charge_->resize(bytes), "a request's charge is not lowered");
}

void release_free_memory() {
  ::malloc_trim(0);
}

int64_t parsed_body_bytes(std::string_view body) {
  // A value has 16 bytes and a member of an object 48; lists have up to twice the room they need.
  constexpr int64_t kBytesPerValue = 2 * 48;
  constexpr auto kMaxValues = static_cast<std::ptrdiff_t>(kMaxBodyValues);
  const std::ptrdiff_t num_values =
      1 + std::ranges::count_if(body, [](char c) { return c == ',' || c == '[' || c == '{'; });
  // Its text, and its strings once more.
  return 2 * static_cast<int64_t>(body.size()) + kBytesPerValue * std::min(num_values, kMaxValues);
}

int64_t tokenizing_bytes(std::string_view text) {
  constexpr int64_t kBytesPerByte =
      24;  // a symbol of the longest word, its places in queues, its id
  return kBytesPerByte * static_cast<int64_t>(text.size());
}

int64_t token_id_bytes(int64_t num_tokens) {
  return 2 * static_cast<int64_t>(sizeof(int32_t)) * num_tokens;
}

int64_t logprob_bytes(int64_t num_positions, int num_top) {
  const auto position = static_cast<int64_t>(sizeof(PositionLogprobs) + sizeof(int64_t));
  return num_positions * (position + (num_top + 1) * static_cast<int64_t>(sizeof(Logprob)));
}

int64_t logprob_text_bytes(int64_t num_positions, int num_top) {
  // "12345":{"logprob":-12.345678901234567,"rank":12345,"decoded_token":"token"},
  constexpr int64_t kBytesPerToken = 76;
  return num_positions * (num_top + 1) * kBytesPerToken;
}

int64_t output_bytes(const RequestOutput& output) {
  int64_t bytes = 0;
  for (const CompletionOutput& completion : output.outputs) {
    bytes += static_cast<int64_t>(completion.text.size());
    bytes += token_id_bytes(static_cast<int64_t>(completion.token_ids.size()));
    for (const PositionLogprobs& position : completion.logprobs) {
      bytes += logprob_bytes(1, static_cast<int>(position.size()));
    }
  }
  return bytes;
}

int64_t output_text_bytes(const RequestOutput& output) {
  int64_t bytes = 0;
  for (const CompletionOutput& completion : output.outputs) {
    bytes += static_cast<int64_t>(completion.text.size());
    for (const PositionLogprobs& position : completion.logprobs) {
      bytes += logprob_text_bytes(1, static_cast<int>(position.size()));
    }
  }
  return bytes;
}

}  // namespace quire::server
