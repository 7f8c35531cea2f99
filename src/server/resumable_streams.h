#pragma once
// Streams of events that a client can go on with after its connection broke: the events have ids,
// the last ones are kept, and the generation goes on meanwhile.
//
// To its generation a resumable stream is an exchange like any other, which takes what is written
// whether or not a client is there. A client that is back (GET /v1/requests/{id}/events) gets what
// follows the last event that it has, to the byte, and what comes then. The stream counts as closed
// once nobody came back for `resume_within`; until then its generation keeps its places.
//
// Memory is bounded: a stream keeps up to max_stream_bytes, half of it of what was sent already (it
// may not have arrived), and all streams together max_bytes, charged to the account of all
// requests. When a stream without a client is full it says so as a slow reader would, and its
// generation waits. A stream that has ended is forgotten after resume_within, or earlier where
// others need the room.
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
  // Both for the time in which streams live: `timers`, and `post`, which runs a task on the I/O
  // thread after the call has returned.
  ResumableStreams(ResumableConfig config, std::shared_ptr<MemoryAccount> memory,
                   TimerQueue& timers, std::function<void(std::function<void()>)> post);

  // The exchange in whose place a generation writes its stream. Of the same owner and id only the
  // newest stream can be resumed. `client`'s callbacks belong to it from now on.
  std::shared_ptr<http::Exchange> adopt(std::shared_ptr<http::Exchange> client,
                                        std::string_view owner, std::string_view request_id);

  // Gives an owner's stream another client, which gets `head` and the events behind the one called
  // `last_event_id` (a decimal number; empty: from the first on). The client that it had is cut
  // off. Throws ApiError 404 where there is no such stream, 400 for an id that no event of it has
  // had, and 410 where events that are missing are not kept any more; the stream is then as it was.
  void resume(std::shared_ptr<http::Exchange> client, http::Response head, std::string_view owner,
              std::string_view request_id, std::string_view last_event_id);

  // Whether an owner's stream can be resumed.
  bool contains(std::string_view owner, std::string_view request_id) const;
  // Of all events that are kept.
  std::size_t bytes() const { return bytes_; }

 private:
  friend class ResumableStream;

  // Null where there is none that can be resumed.
  std::shared_ptr<ResumableStream> find(std::string_view owner, std::string_view request_id) const;
  // Counts events that came (> 0) or went.
  void add_bytes(int64_t bytes);
  // Whether there is no room, or no memory, for more than is kept now.
  bool is_full() { return bytes_ >= config_.max_bytes || !charge_bytes(); }
  // Charges what is kept; false where the account has not that much.
  bool charge_bytes();
  // Forgets streams that have ended, the oldest first, while there is too much.
  void make_room();
  void forget(const ResumableStream& ended);

  const ResumableConfig config_;
  TimerQueue& timers_;
  const std::function<void(std::function<void()>)> post_;
  // Those that can be resumed, by owner and id; their generations own them until they have ended.
  std::unordered_map<std::string, std::weak_ptr<ResumableStream>> streams_;
  std::deque<std::shared_ptr<ResumableStream>> ended_;  // the oldest first
  std::size_t bytes_ = 0;
  MemoryCharge charge_;
};

}  // namespace quire::server
