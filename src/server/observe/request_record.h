#pragma once
// Facts of one HTTP request: the access log prints them and the metrics count them once it is over,
// and /v1/requests/{id} explains them.
//
// It never holds prompts, outputs or API keys.
//
// Thread safety: a plain value.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "server/observe/trace_context.h"

namespace quire::server {

// How far a request has come.
enum class RequestStage {
  kQueued,   // it is read, or waits for its turn
  kRunning,  // the engine has it
  kFinished,
};

struct RequestRecord {
  std::string request_id{};
  RequestStage stage = RequestStage::kFinished;
  std::chrono::system_clock::time_point arrived{};
  std::string method{};  // "POST"
  std::string path{};    // percent-decoded, without the query
  std::string model{};   // as the client named it; empty where it did not
  // Who sent it, for logs: a short hash of the API key, or the address if there are no keys.
  std::string client{};
  // The request's owner: the whole hash of the API key; empty without keys. Compared, never shown.
  std::string owner{};

  int status = 0;  // of the answer; 499 where the client had gone before there was one
  // How the whole request ended: "stop", "length", "abort", "timeout", "tool_calls", "error".
  // Empty: it never reached the engine (refused, or not a generation).
  std::string finish_reason{};
  // Why admission refused it: "queue_full", "queue_timeout", "shutting_down". Empty: it did not.
  std::string reject_reason{};
  std::string error{};  // the sentence that the client got; empty where it went well
  bool stream = false;
  bool client_disconnected = false;

  // Parameters as they took effect.
  int64_t n = 1;
  std::optional<int64_t> max_tokens{};
  std::optional<double> temperature{};
  std::optional<double> top_p{};
  std::optional<double> timeout_s{};

  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of these, found in the prefix cache
  int64_t output_tokens = 0;  // over all n

  // The engine's work for it, over all prompts and n, as far as outputs have reported it.
  int64_t steps = 0;  // that computed tokens of it; of several prompts each counts its own
  int64_t preemptions = 0;
  int64_t draft_tokens = 0;           // verified
  int64_t accepted_draft_tokens = 0;  // of these, kept

  // Times in seconds; 0 for what it did not come to.
  double queue_s = 0;    // from arrival until the engine first scheduled it: admission and engine
  double prefill_s = 0;  // from then to the first token
  double decode_s = 0;   // from the first token to the last
  double ttft_s = 0;     // from arrival to the first token
  double total_s = 0;    // from arrival until the answer is ready, in the log until it is sent

  // The load when it arrived, to explain its wait.
  int64_t running_at_arrival = 0;
  int64_t waiting_at_arrival = 0;

  // The trace that it is part of; nothing where its client named none, or traces are not exported.
  std::optional<TraceContext> trace{};
};

// When its first and its last token came; nothing without tokens.
inline std::optional<std::chrono::system_clock::time_point> first_token_time(
    const RequestRecord& record) {
  if (record.output_tokens == 0) return std::nullopt;
  return record.arrived + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                              std::chrono::duration<double>(record.ttft_s));
}
inline std::optional<std::chrono::system_clock::time_point> last_token_time(
    const RequestRecord& record) {
  if (record.output_tokens == 0) return std::nullopt;
  return record.arrived + std::chrono::duration_cast<std::chrono::system_clock::duration>(
                              std::chrono::duration<double>(record.ttft_s + record.decode_s));
}

// The client left, or stopped reading, before it had all of the answer.
void mark_undelivered(RequestRecord& record);

}  // namespace quire::server
