#pragma once
// One stream of resumable_streams.h.
//
// Thread safety: the I/O thread.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/resumable_streams.h"

namespace quire::server {

class ResumableStream : public http::Exchange,
                        public std::enable_shared_from_this<ResumableStream> {
 public:
  // `key`: its key in streams->streams_.
  ResumableStream(std::shared_ptr<ResumableStreams> streams, std::string key,
                  http::Request request);
  ~ResumableStream() override;

  // Sets the first client: the one that sent the request, and whose answer has not begun.
  void begin_with(std::shared_ptr<http::Exchange> client);
  // Sends a client that came back the events after number `event` (0: all events), and those to
  // come. The client before it is cut off.
  void resume_with(std::shared_ptr<http::Exchange> client, http::Response head, uint64_t event);

  // Events are numbered from 1.
  uint64_t last_event() const { return first_kept_ + events_.size() - 1; }
  // Whether all events after `event` are still kept.
  bool keeps_behind(uint64_t event) const { return event + 1 >= first_kept_; }
  std::size_t bytes() const { return bytes_; }

  // From now on nobody can come back to it.
  void close();

  // For its generation, as for any exchange.
  const http::Request& request() const override { return request_; }
  std::string take_body() override { return {}; }
  std::unique_ptr<MemoryCharge> take_charge() override { return nullptr; }
  void respond(http::Response response) override;
  void begin_stream(http::Response head) override;
  // Whole events: each ends with an empty line.
  void write(std::string piece) override;
  void finish() override;
  std::size_t buffered() const override;
  void on_drain(std::function<void()> callback) override { on_drain_ = std::move(callback); }
  void on_closed(std::function<void()> callback) override { on_closed_ = std::move(callback); }
  bool closed() const override { return closed_; }
  void on_end(std::function<void(bool delivered)> callback) override;

 private:
  void listen_to_client();
  void add_event(std::string_view event);
  // Sends the client the events that it lacks, as fast as it takes them, and forgets old ones.
  void send();
  void drop_old_events();
  void finish_client();
  template <typename Step>
  void or_lose_client(Step step);
  void client_left();
  void tell_drained();
  // Ends the stream unless a client comes back in time.
  void wait_for_client();
  void nobody_came();
  void end_unresumed();
  void tell_end(bool delivered);

  const std::weak_ptr<ResumableStreams> streams_;
  const ResumableConfig config_;
  const std::string key_;
  const http::Request request_;             // without its body
  std::shared_ptr<http::Exchange> client_;  // null while there is none
  uint64_t client_number_ = 0;              // tells callbacks of earlier clients apart
  bool client_has_head_ = false;
  bool finished_ = false;    // by its generation
  bool delivering_ = false;  // the last client has been given all, and is not done with it
  bool closed_ = false;
  std::optional<bool> delivered_{};  // set once it has ended

  std::deque<std::string> events_;  // as they are sent
  uint64_t first_kept_ = 1;         // the number of events_.front()
  uint64_t next_to_send_ = 1;
  std::size_t bytes_ = 0;         // of events_
  std::size_t unsent_bytes_ = 0;  // of those from next_to_send_ on

  uint64_t wait_number_ = 0;  // of the last wait_for_client() that counts
  std::function<void()> on_drain_;
  std::function<void()> on_closed_;
  std::function<void(bool delivered)> on_end_;
};

}  // namespace quire::server
