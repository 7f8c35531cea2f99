#pragma once
// Streams of events that a client can continue after its connection broke: events have ids, the
// last ones are kept, and the generation goes on meanwhile.
//
// To its generation a resumable stream is an exchange like any other, which accepts data whether or
// not a client is there. A client that comes back (GET /v1/requests/{id}/events) gets, to the byte,
// the events after the last one that it has, and those to come. The stream counts as closed if
// nobody comes back within `resume_within`; until then its generation keeps its places.
//
// Memory is bounded: a stream keeps up to max_stream_bytes, half of them for events that were sent
// (they may not have arrived), and all streams together max_bytes, charged to the account of all
// requests. A full stream without a client acts like a slow reader, and its generation waits. A
// stream that has ended is forgotten after resume_within, or earlier where others need the room.
//
// Thread safety: the I/O thread.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/memory_account.h"
#include "base/timer_queue.h"
#include "http/exchange.h"

namespace quire::server {

struct ResumableConfig {
  std::chrono::duration<double> resume_within = std::chrono::seconds(60);
  std::size_t max_stream_bytes = 4 << 20;
  std::size_t max_bytes = 256 << 20;
};

class ResumableStream;

class ResumableStreams : public std::enable_shared_from_this<ResumableStreams> {
 public:
  // `timers` and `post` must live as long as the streams. `post` runs a task on the I/O thread
  // after the call has returned.
  ResumableStreams(ResumableConfig config, std::shared_ptr<MemoryAccount> memory,
                   TimerQueue& timers, std::function<void(std::function<void()>)> post);

  // Returns the exchange that a generation writes its stream to, in place of `client`, whose
  // callbacks belong to it from now on. Of one owner and id only the newest stream can be resumed.
  std::shared_ptr<http::Exchange> adopt(std::shared_ptr<http::Exchange> client,
                                        std::string_view owner, std::string_view request_id);

  // Continues an owner's stream with another client, which gets `head` and the events after
  // `last_event_id` (a decimal number; empty: all events). The client before it is cut off. Throws
  // ApiError 404 where there is no such stream, 400 for an id that none of its events had, and 410
  // where missing events are not kept any more; the stream is then unchanged.
  void resume(std::shared_ptr<http::Exchange> client, http::Response head, std::string_view owner,
              std::string_view request_id, std::string_view last_event_id);

  // Whether an owner's stream can be resumed.
  bool contains(std::string_view owner, std::string_view request_id) const;
  // Bytes of all events that are kept.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class ResumableStream;

  // Null where no such stream can be resumed.
  std::shared_ptr<ResumableStream> find(std::string_view owner, std::string_view request_id) const;
  // Adds the bytes of new events (> 0) or forgotten ones (< 0).
  void add_bytes(int64_t bytes);
  // Whether there is no room, or no memory, for more events.
  bool is_full() { return bytes_ >= config_.max_bytes || !charge_bytes(); }
  // Charges the bytes of kept events; false where the account has too little left.
  bool charge_bytes();
  // Forgets streams that have ended, oldest first, while too much is kept.
  void make_room();
  void forget(const ResumableStream& ended);

  const ResumableConfig config_;
  TimerQueue& timers_;
  const std::function<void(std::function<void()>)> post_;
  // Streams that can be resumed, by owner and id. Generations own them until they have ended.
  std::unordered_map<std::string, std::weak_ptr<ResumableStream>> streams_;
  std::deque<std::shared_ptr<ResumableStream>> ended_;  // the oldest first
  std::size_t bytes_ = 0;
  MemoryCharge charge_;
};

}  // namespace quire::server
