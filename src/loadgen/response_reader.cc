#include "loadgen/response_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/lower_case.h"

namespace quire::loadgen {
namespace {

constexpr size_t kMaxErrorBodyBytes = size_t{16} << 10;
constexpr int kTooManyRequests = 429;

bool is_event_stream(std::string_view content_type) {
  constexpr std::string_view kType = "text/event-stream";
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return same_in_lower_case(type, kType);
}

}  // namespace

ResponseReader::ResponseReader(double sent_s, bool keep_text)
    : sent_s_(sent_s), keep_text_(keep_text), sse_(*this), now_s_(sent_s) {}

void ResponseReader::on_headers(int status, std::string_view content_type) {
  if (status != 200) {
    kind_ = Kind::kErrorBody;
  } else if (is_event_stream(content_type)) {
    kind_ = Kind::kStream;
  } else {
    kind_ = Kind::kNoStream;
    body_ = fmt::format("the answer is of type '{}' where text/event-stream was expected: ",
                        content_type);
  }
}

bool ResponseReader::on_body(std::string_view bytes, double now_s) {
  now_s_ = now_s;
  if (kind_ != Kind::kStream) {
    body_ += bytes.substr(0, kMaxErrorBodyBytes - std::min(kMaxErrorBodyBytes, body_.size()));
    return true;
  }
  const SseReader::Status status = sse_.feed(bytes);
  if (status == SseReader::Status::kTooLong) {
    fail(fmt::format("an event is longer than {} MiB", SseReader::kMaxEventBytes >> 20));
  }
  return !failed_;
}

bool ResponseReader::on_event(std::string_view data) {
  if (done_) return true;  // nothing is expected after [DONE], and nothing there does harm
  if (data == "[DONE]") {
    done_ = true;
    result_.total_s = now_s_ - sent_s_;
    return true;
  }
  if (!parse_stream_chunk(data, keep_text_, chunk_)) {
    fail("an event is no JSON object as streamed completions have");
    return false;
  }
  if (chunk_.error) {
    fail("the stream ended with an error: " + *chunk_.error);
    return false;
  }
  if (chunk_.has_output) record_output();
  if (chunk_.prompt_tokens) result_.input_tokens = chunk_.prompt_tokens;
  if (chunk_.completion_tokens) result_.output_tokens = chunk_.completion_tokens;
  if (chunk_.cached_tokens) result_.cached_tokens = chunk_.cached_tokens;
  return !failed_;
}

void ResponseReader::record_output() {
  const double at_s = now_s_ - sent_s_;
  if (result_.num_output_events == 0) {
    result_.ttft_s = at_s;
  } else {
    result_.itl_s.push_back(static_cast<float>(at_s - result_.last_output_s));
  }
  result_.last_output_s = at_s;
  result_.text += chunk_.text;
  if (++result_.num_output_events > kMaxOutputEvents || result_.text.size() > kMaxTextBytes) {
    fail(fmt::format("the answer has more than {} events or {} MiB of text", kMaxOutputEvents,
                     kMaxTextBytes >> 20));
  }
}

void ResponseReader::fail(std::string message) {
  if (failed_) return;
  failed_ = true;
  result_.error = std::move(message);
}

RequestResult ResponseReader::finish(int status, std::string_view error, double now_s) {
  now_s_ = now_s;
  if (kind_ == Kind::kUnknown && error.empty()) on_headers(status, "");
  if (failed_) {
    // Said already.
  } else if (kind_ == Kind::kErrorBody) {
    fail(fmt::format("HTTP {}: {}", status, error_message_of(body_)));
    if (status == kTooManyRequests) result_.outcome = Outcome::kRejected;
  } else if (!error.empty()) {
    fail(std::string(error));
  } else if (kind_ == Kind::kNoStream) {
    fail(error_message_of(body_));
  } else {
    sse_.finish();
    if (!done_) fail("the stream ended without [DONE]");
  }
  if (!failed_) {
    result_.outcome = Outcome::kSucceeded;
    // Tokens whose text is empty come without an event of their own.
    if (result_.num_output_events == 0) result_.ttft_s = result_.last_output_s = result_.total_s;
  }
  return std::move(result_);
}

}  // namespace quire::loadgen
