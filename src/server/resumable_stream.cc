#include "server/resumable_stream.h"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>

namespace quire::server {

ResumableStream::ResumableStream(std::shared_ptr<ResumableStreams> streams, std::string key,
                                 http::Request request)
    : streams_(streams),
      config_(streams->config_),
      key_(std::move(key)),
      request_(std::move(request)) {}

ResumableStream::~ResumableStream() {
  const auto streams = streams_.lock();
  if (streams == nullptr) return;
  streams->add_bytes(-static_cast<int64_t>(bytes_));
  // A newer one of the same id may stand there.
  const auto it = streams->streams_.find(key_);
  if (it != streams->streams_.end() && it->second.expired()) streams->streams_.erase(it);
}

void ResumableStream::begin_with(std::shared_ptr<http::Exchange> client) {
  client_ = std::move(client);
  listen_to_client();
}

void ResumableStream::resume_with(std::shared_ptr<http::Exchange> client, http::Response head,
                                  uint64_t event) {
  client->begin_stream(std::move(head));  // the caller refuses it where this throws
  client_ = std::move(client);            // lets go of the last one, which cuts it off
  client_has_head_ = true;
  delivering_ = false;
  ++wait_number_;
  next_to_send_ = event + 1;
  unsent_bytes_ = 0;
  for (uint64_t next = next_to_send_; next <= last_event(); ++next) {
    unsent_bytes_ += events_[next - first_kept_].size();
  }
  or_lose_client([this] {
    listen_to_client();
    send();
  });
  tell_drained();
}

void ResumableStream::listen_to_client() {
  const uint64_t number = ++client_number_;
  const auto if_still = [weak = weak_from_this(), number](auto call) {
    return [weak, number, call] {
      const auto self = weak.lock();
      if (self && self->client_number_ == number) call(*self);
    };
  };
  client_->on_closed(if_still([](ResumableStream& self) { self.client_left(); }));
  client_->on_drain(if_still([](ResumableStream& self) {
    self.send();
    self.tell_drained();
  }));
}

void ResumableStream::respond(http::Response response) {
  finished_ = closed_ = true;  // there is nothing to come back to
  if (client_ == nullptr) return tell_end(false);
  client_->on_end([self = shared_from_this()](bool delivered) { self->tell_end(delivered); });
  const auto client = std::move(client_);
  if (!client_has_head_) {
    client->respond(std::move(response));
  } else {  // one that came back before it was refused
    client->write(fmt::format("data: {}\n\ndata: [DONE]\n\n", response.body));
    client->finish();
  }
}

void ResumableStream::begin_stream(http::Response head) {
  if (client_ == nullptr || client_has_head_) return;
  client_->begin_stream(std::move(head));
  client_has_head_ = true;
}

void ResumableStream::write(std::string piece) {
  constexpr std::string_view kEnd = "\n\n";
  std::string_view rest = piece;
  while (!rest.empty()) {
    const size_t end = rest.find(kEnd);
    const size_t length = end == std::string_view::npos ? rest.size() : end + kEnd.size();
    add_event(rest.substr(0, length));
    rest.remove_prefix(length);
  }
  send();
}

void ResumableStream::add_event(std::string_view event) {
  events_.push_back(fmt::format("id: {}\n{}", last_event() + 1, event));
  const size_t size = events_.back().size();
  bytes_ += size;
  unsent_bytes_ += size;
  const auto streams = streams_.lock();
  if (streams == nullptr) return;
  streams->add_bytes(static_cast<int64_t>(size));
  streams->make_room();
}

void ResumableStream::finish() {
  if (const auto streams = streams_.lock()) streams->ended_.push_back(shared_from_this());
  finished_ = true;
  or_lose_client([this] { send(); });
  wait_for_client();
}

// For what has no caller who could tell the client that there is no memory: it may come back.
template <typename Step>
void ResumableStream::or_lose_client(Step step) {
  try {
    step();
  } catch (const std::exception&) {
    ++client_number_;
    client_left();
  }
}

void ResumableStream::send() {
  if (client_ == nullptr) return;
  while (next_to_send_ <= last_event() && client_->buffered() <= kStreamHighWater) {
    const std::string& event = events_[next_to_send_ - first_kept_];
    client_->write(event);
    ++next_to_send_;
    unsent_bytes_ -= event.size();
  }
  drop_old_events();
  if (finished_ && next_to_send_ > last_event()) finish_client();
}

// The client's on_end, which comes last, says whether it has all.
void ResumableStream::finish_client() {
  client_->on_end([self = shared_from_this(), number = client_number_](bool delivered) {
    if (self->client_number_ != number) return;
    self->delivering_ = false;
    delivered ? self->tell_end(true) : self->client_left();
  });
  const auto client = std::move(client_);
  delivering_ = true;
  client->finish();
}

// Of those that were sent: they may not have arrived. What a client has yet to get is kept.
void ResumableStream::drop_old_events() {
  const auto streams = streams_.lock();
  const auto has_too_much = [&] {
    return bytes_ - unsent_bytes_ > config_.max_stream_bytes / 2 ||
           (streams != nullptr && streams->is_full());
  };
  while (first_kept_ < next_to_send_ && has_too_much()) {
    const size_t size = events_.front().size();
    events_.pop_front();
    ++first_kept_;
    bytes_ -= size;
    if (streams != nullptr) streams->add_bytes(-static_cast<int64_t>(size));
  }
}

std::size_t ResumableStream::buffered() const {
  if (client_ != nullptr) return client_->buffered() + unsent_bytes_;
  const auto streams = streams_.lock();
  const bool is_full =
      bytes_ >= config_.max_stream_bytes || (streams != nullptr && streams->is_full());
  return is_full ? kStreamHighWater + 1 : 0;
}

void ResumableStream::client_left() {
  client_.reset();
  if (closed_) return tell_end(false);
  wait_for_client();
  tell_drained();  // what it did not take in time goes to what is kept
}

void ResumableStream::tell_drained() {
  if (on_drain_ && buffered() <= kStreamHighWater) on_drain_();
}

void ResumableStream::wait_for_client() {
  const auto streams = streams_.lock();
  if (streams == nullptr) return;
  const uint64_t number = ++wait_number_;
  try {
    streams->timers_.after(config_.resume_within,
                           [weak = weak_from_this(), number, post = streams->post_] {
                             post([weak, number] {
                               const auto self = weak.lock();
                               if (self && self->wait_number_ == number) self->nobody_came();
                             });
                           });
  } catch (const std::bad_alloc&) {
    end_unresumed();  // it would be kept for ever
  }
}

void ResumableStream::nobody_came() {
  if (client_ != nullptr || delivering_) return wait_for_client();  // it still reads
  end_unresumed();
}

void ResumableStream::end_unresumed() {
  const auto self = shared_from_this();
  if (const auto streams = streams_.lock()) streams->forget(*this);
  close();
  if (!finished_ && on_closed_) std::exchange(on_closed_, nullptr)();
}

void ResumableStream::close() {
  closed_ = true;
  if (!delivering_) tell_end(false);
}

void ResumableStream::on_end(std::function<void(bool delivered)> callback) {
  const auto streams = streams_.lock();
  if (!delivered_ || streams == nullptr) {
    on_end_ = std::move(callback);
    return;
  }
  streams->post_(
      [callback = std::move(callback), delivered = *delivered_] { callback(delivered); });
}

void ResumableStream::tell_end(bool delivered) {
  if (delivered_) return;
  delivered_ = delivered;
  on_drain_ = nullptr;
  if (on_end_) std::exchange(on_end_, nullptr)(delivered);
}

}  // namespace quire::server
