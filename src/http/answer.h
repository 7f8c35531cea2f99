#pragma once
// The answer to one request while it is made, shared by its exchange (any thread) and its
// connection (the I/O thread). The exchange queues bytes; each time that the socket is free, the
// connection takes all that are queued.
//
// Thread safety: the first group from any thread; the second only on the connection's I/O thread.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"
#include "http/response_head.h"

namespace quire::http {

class Connection;
class IoLoop;
struct ServerContext;

class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(std::shared_ptr<IoLoop> loop, std::shared_ptr<const ServerContext> server,
         AnswerFormat format, Connection& connection);

  void respond(Response response);
  void begin_stream(Response head);
  void write(std::string_view piece);
  void finish();
  // The exchange was destroyed: an unanswered request gets a 500, a half-sent answer is cut off. If
  // there is no memory for that, the answer is lost().
  void abandon() noexcept;
  std::size_t buffered() const { return buffered_.load(std::memory_order_relaxed); }
  void on_drain(std::function<void()> callback);
  void on_closed(std::function<void()> callback);
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  void on_end(std::function<void(bool delivered)> callback);

  // What a connection has to write next.
  struct Taken {
    std::size_t begin = 0;  // where in the buffer the bytes start
    bool last = false;      // the answer ends with them
  };
  // Fills `buffer`, reusing its capacity. If there is nothing to write and it is not the last, the
  // next write() wakes the connection. Only to be called once all that was taken before is written.
  Taken take(std::string& buffer);
  // The socket has taken `bytes` of what take() gave. Calls on_drain where that is due.
  void wrote(std::size_t bytes);
  // Whether all of it is queued.
  bool complete() const;
  // Whether nothing more will come, and the connection could not be told.
  bool lost() const { return lost_.load(std::memory_order_relaxed); }
  // Whether the connection ends behind this answer. At Taken::last.
  bool closes_connection() const { return closes_connection_; }
  // No more is taken. `gone`: the client left before the end; on_closed is then called if the
  // answer was not complete.
  void end(bool gone);
  // Makes the connection write what is queued, if the connection still has this answer.
  void flush();

 private:
  enum class State { kUnanswered, kStreaming, kComplete };

  // Both unlock `lock`.
  void queue_whole(std::unique_lock<std::mutex>& lock, const Response& response);
  void wake(std::unique_lock<std::mutex>& lock);
  // Unlike abandon() it may throw std::bad_alloc.
  void answer_for_handler();
  AnswerFormat settle_connection(Framing framing);
  std::size_t take_pieces(std::string& buffer);
  void cut_off(bool slow_reader);

  const std::shared_ptr<IoLoop> loop_;
  const std::shared_ptr<const ServerContext> server_;
  const AnswerFormat format_;
  Connection* connection_;  // the I/O thread's; none once the answer has ended

  std::atomic<std::size_t> buffered_{0};
  std::atomic<bool> above_high_water_{false};  // on_drain is owed
  std::atomic<bool> closed_{false};
  std::atomic<bool> lost_{false};

  mutable std::mutex mutex_;  // of all below
  State state_ = State::kUnanswered;
  Framing framing_ = Framing::kLength;
  bool closes_connection_ = false;
  bool busy_ = false;  // the connection will take without being woken
  bool too_much_ = false;
  bool last_taken_ = false;
  std::string head_;     // goes out in front of everything else
  std::string pending_;  // kChunkHeadRoom bytes, then the pieces that wait
  std::function<void()> on_drain_;
  std::function<void()> on_closed_;
  std::function<void(bool delivered)> on_end_;
  std::optional<bool> delivered_;  // once it has ended
};

}  // namespace quire::http
