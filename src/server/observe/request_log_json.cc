#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "server/observe/access_log_text.h"
#include "server/observe/request_log.h"

namespace quire::server {
namespace {

std::string plural(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "0.42 ms", "12 ms", "3.4 s".
std::string duration(double seconds) {
  if (seconds < 0.01) return fmt::format("{:.2f} ms", seconds * 1000);
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1000);
  return fmt::format("{:.1f} s", seconds);
}

// ", 340 tokens/s", or nothing where there is too little time to say.
std::string rate(int64_t tokens, double seconds) {
  return seconds > 1e-6 && tokens > 0
             ? fmt::format(", {:.4g} tokens/s", static_cast<double>(tokens) / seconds)
             : "";
}

// "1 request was", "8 requests were".
std::string requests_were(int64_t count) {
  return plural(count, "request") + (count == 1 ? " was" : " were");
}

std::string explain_queue(const RequestRecord& record) {
  constexpr double kAtOnce = 0.001;
  if (record.queue_s < kAtOnce) return "It was scheduled at once.";
  if (record.running_at_arrival == 0 && record.waiting_at_arrival == 0) {
    return fmt::format("It was read, tokenized and scheduled within {}, with nothing before it.",
                       duration(record.queue_s));
  }
  return fmt::format("It queued for {}, because when it came {} running and {} waiting.",
                     duration(record.queue_s), requests_were(record.running_at_arrival),
                     record.waiting_at_arrival);
}

std::string explain_preemptions(const RequestRecord& record) {
  return fmt::format(
      "It gave its KV blocks up to other requests {}, and computed its tokens again.",
      record.preemptions == 1 ? "once" : fmt::format("{} times", record.preemptions));
}

std::string explain_drafts(const RequestRecord& record) {
  return fmt::format("Of {} that it was given, {} {} kept: it took {}.",
                     plural(record.draft_tokens, "draft token"), record.accepted_draft_tokens,
                     record.accepted_draft_tokens == 1 ? "was" : "were",
                     plural(record.steps, "step"));
}

std::string explain_prefill(const RequestRecord& record) {
  const int64_t computed = record.prompt_tokens - record.cached_tokens;
  return fmt::format("Prefill took {} for {}, of which {} came from the prefix cache{}.",
                     duration(record.prefill_s), plural(record.prompt_tokens, "prompt token"),
                     record.cached_tokens, rate(computed, record.prefill_s));
}

std::string explain_decode(const RequestRecord& record) {
  // Each of the n sequences has its first token from prefill.
  const int64_t decoded = record.output_tokens - std::max<int64_t>(record.n, 1);
  return fmt::format(
      "Decoding took {} for {}{}{}.", duration(record.decode_s),
      plural(decoded, "output token") + " after the first",
      record.n > 1 ? fmt::format(" of each of {} sequences side by side", record.n) : "",
      rate(decoded, record.decode_s));
}

std::string explain_rest(const RequestRecord& record) {
  const double known = record.queue_s + record.prefill_s + record.decode_s;
  const double rest = std::max(record.total_s - known, 0.0);
  return fmt::format("The other {} of {} went to sending the answer.", duration(rest),
                     duration(record.total_s));
}

std::string explain_end(const RequestRecord& record) {
  if (record.client_disconnected) return "It ended because the client disconnected.";
  if (record.finish_reason == "stop") {
    return "It ended where the model, a stop string or a stop token ended it.";
  }
  if (record.finish_reason == "length") {
    return record.max_tokens
               ? fmt::format("It ended at max_tokens = {} or the model's context length.",
                             *record.max_tokens)
               : std::string("It ended at the model's context length.");
  }
  if (record.finish_reason == "timeout") {
    return record.timeout_s
               ? fmt::format("It ended when its timeout of {} s had passed.", *record.timeout_s)
               : std::string("It ended when its time was up.");
  }
  if (record.finish_reason == "tool_calls") return "It ended with calls of tools.";
  if (record.finish_reason == "abort") return "The server ended it before it was complete.";
  return fmt::format("It ended with {}.", record.finish_reason);
}

// Of one that is not over.
std::vector<std::string> explain_so_far(const RequestRecord& record) {
  if (record.stage == RequestStage::kQueued) {
    return {
        fmt::format("It has waited for its turn for {}; when it came {} running and {} waiting.",
                    duration(record.total_s), requests_were(record.running_at_arrival),
                    record.waiting_at_arrival)};
  }
  if (record.output_tokens == 0) {
    return {fmt::format("The engine has it, and it had no output token yet after {}.",
                        duration(record.total_s))};
  }
  std::vector<std::string> sentences = {explain_queue(record), explain_prefill(record)};
  if (record.preemptions > 0) sentences.push_back(explain_preemptions(record));
  sentences.push_back(fmt::format("It has {} after {}.",
                                  plural(record.output_tokens, "output token"),
                                  duration(record.total_s)));
  return sentences;
}

std::vector<std::string> explain(const RequestRecord& record) {
  if (record.stage != RequestStage::kFinished) return explain_so_far(record);
  std::vector<std::string> sentences;
  if (!record.reject_reason.empty()) {
    sentences.push_back(fmt::format("It was refused after {} with status {} ({}).",
                                    duration(record.total_s), record.status, record.reject_reason));
    return sentences;
  }
  if (record.finish_reason.empty()) {
    sentences.push_back(record.client_disconnected
                            ? fmt::format("The client disconnected after {}, before generation.",
                                          duration(record.total_s))
                            : fmt::format("It was answered with status {} after {}, without "
                                          "generating.",
                                          record.status, duration(record.total_s)));
    return sentences;
  }
  if (record.output_tokens == 0) {
    sentences.push_back(
        fmt::format("It had no output token yet after {}.", duration(record.total_s)));
  } else {
    sentences.push_back(explain_queue(record));
    sentences.push_back(explain_prefill(record));
    if (record.preemptions > 0) sentences.push_back(explain_preemptions(record));
    if (record.draft_tokens > 0) sentences.push_back(explain_drafts(record));
    if (record.output_tokens > record.n) sentences.push_back(explain_decode(record));
    sentences.push_back(explain_rest(record));
  }
  sentences.push_back(explain_end(record));
  return sentences;
}

std::string_view name_of(RequestStage stage) {
  switch (stage) {
    case RequestStage::kQueued:
      return "queued";
    case RequestStage::kRunning:
      return "running";
    case RequestStage::kFinished:
      return "finished";
  }
  return "finished";
}

using Time = std::chrono::system_clock::time_point;

void write_time(JsonWriter& json, std::string_view name, const std::optional<Time>& time) {
  if (time) {
    json.member(name, format_time(*time));
  } else {
    json.null_member(name);
  }
}

void write_text(JsonWriter& json, std::string_view name, const std::string& text) {
  if (text.empty()) {
    json.null_member(name);
  } else {
    json.member(name, text);
  }
}

template <typename T>
void write_value(JsonWriter& json, std::string_view name, const std::optional<T>& value) {
  if (value) {
    json.member(name, *value);
  } else {
    json.null_member(name);
  }
}

void write_parameters(JsonWriter& json, const RequestRecord& record) {
  json.key("parameters").begin_object().member("n", record.n);
  write_value(json, "max_tokens", record.max_tokens);
  write_value(json, "temperature", record.temperature);
  write_value(json, "top_p", record.top_p);
  write_value(json, "timeout", record.timeout_s);
  json.end_object();
}

void write_figures(JsonWriter& json, const RequestRecord& record) {
  json.key("usage").begin_object();
  json.member("prompt_tokens", record.prompt_tokens);
  json.member("cached_tokens", record.cached_tokens);
  json.member("completion_tokens", record.output_tokens).end_object();
  json.key("engine").begin_object();
  json.member("steps", record.steps).member("preemptions", record.preemptions);
  json.member("draft_tokens", record.draft_tokens);
  json.member("accepted_draft_tokens", record.accepted_draft_tokens).end_object();
  json.key("seconds").begin_object();
  json.member("queue", record.queue_s).member("prefill", record.prefill_s);
  json.member("decode", record.decode_s).member("time_to_first_token", record.ttft_s);
  json.member("total", record.total_s).end_object();
  json.key("at_arrival").begin_object();
  json.member("running", record.running_at_arrival);
  json.member("waiting", record.waiting_at_arrival).end_object();
}

}  // namespace

std::string explain_request_json(const RequestRecord& record) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().member("id", record.request_id).member("object", "request");
  json.member("state", name_of(record.stage)).member("created_at", format_time(record.arrived));
  write_time(json, "first_token_at", first_token_time(record));
  write_time(json, "last_token_at", last_token_time(record));
  json.member("method", record.method).member("path", record.path);
  write_text(json, "model", record.model);
  json.member("client", record.client);
  // 0: there is no answer yet.
  write_value(json, "status",
              record.status == 0 ? std::nullopt : std::optional<int>(record.status));
  json.member("stream", record.stream);
  write_text(json, "finish_reason", record.finish_reason);
  write_text(json, "reject_reason", record.reject_reason);
  json.member("client_disconnected", record.client_disconnected);
  write_text(json, "error", record.error);
  write_parameters(json, record);
  write_figures(json, record);
  json.key("explanation").values(explain(record)).end_object();
  return out;
}

}  // namespace quire::server
