#include "server/resumable_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "server/api/api_error.h"
#include "server/resumable_stream.h"

namespace quire::server {
namespace {

// Unambiguous: a hash of a key in hexadecimal holds no line feed.
std::string stream_key(std::string_view owner, std::string_view request_id) {
  return fmt::format("{}\n{}", owner, request_id);
}

// The request of an exchange without its body, which its generation has taken.
http::Request head_of(const http::Request& request) {
  return {.method = request.method,
          .path = request.path,
          .query = request.query,
          .headers = request.headers,
          .body = {},
          .remote = request.remote,
          .tls = request.tls};
}

uint64_t parse_event_id(std::string_view text) {
  if (text.empty()) return 0;
  uint64_t event = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), event);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw invalid_request("Last-Event-ID is no id of an event; expected a number.");
  }
  return event;
}

}  // namespace

ResumableStreams::ResumableStreams(ResumableConfig config, std::shared_ptr<MemoryAccount> memory,
                                   TimerQueue& timers,
                                   std::function<void(std::function<void()>)> post)
    : config_(config), timers_(timers), post_(std::move(post)), charge_(std::move(memory)) {}

std::shared_ptr<http::Exchange> ResumableStreams::adopt(std::shared_ptr<http::Exchange> client,
                                                        std::string_view owner,
                                                        std::string_view request_id) {
  std::string key = stream_key(owner, request_id);
  auto stream =
      std::make_shared<ResumableStream>(shared_from_this(), key, head_of(client->request()));
  streams_[std::move(key)] = stream;
  stream->begin_with(std::move(client));
  return stream;
}

void ResumableStreams::resume(std::shared_ptr<http::Exchange> client, http::Response head,
                              std::string_view owner, std::string_view request_id,
                              std::string_view last_event_id) {
  const auto stream = find(owner, request_id);
  if (stream == nullptr) {
    throw not_found(
        "There is no stream of that request to go on with: it was not resumable, or nobody came "
        "back to it in time.");
  }
  const uint64_t event = parse_event_id(last_event_id);
  if (event > stream->last_event()) {
    throw invalid_request(fmt::format("Last-Event-ID is {}, and the stream's last event is {}.",
                                      event, stream->last_event()));
  }
  if (!stream->keeps_behind(event)) {
    throw ApiError(410, "invalid_request_error",
                   fmt::format("What follows event {} is not kept any more.", event));
  }
  stream->resume_with(std::move(client), std::move(head), event);
}

std::shared_ptr<ResumableStream> ResumableStreams::find(std::string_view owner,
                                                        std::string_view request_id) const {
  const auto found = streams_.find(stream_key(owner, request_id));
  const auto stream = found == streams_.end() ? nullptr : found->second.lock();
  return stream != nullptr && !stream->closed() ? stream : nullptr;
}

bool ResumableStreams::contains(std::string_view owner, std::string_view request_id) const {
  return find(owner, request_id) != nullptr;
}

void ResumableStreams::add_bytes(int64_t bytes) {
  bytes_ += static_cast<size_t>(bytes);
  charge_bytes();
}

// Looks before it asks: what it does without is no request that was refused.
bool ResumableStreams::charge_bytes() {
  const auto bytes = static_cast<int64_t>(bytes_);
  const MemoryAccount& account = charge_.account();
  if (bytes - charge_.bytes() > account.limit() - account.used()) return false;
  return charge_.resize(bytes);
}

void ResumableStreams::make_room() {
  while (is_full() && !ended_.empty()) {
    ended_.front()->close();
    ended_.pop_front();
  }
}

void ResumableStreams::forget(const ResumableStream& ended) {
  const auto it =
      std::ranges::find_if(ended_, [&ended](const auto& stream) { return stream.get() == &ended; });
  if (it != ended_.end()) ended_.erase(it);  // it is among the oldest
}

}  // namespace quire::server
