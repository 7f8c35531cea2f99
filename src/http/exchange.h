#pragma once
// One request and the answer to it. The handler keeps the Exchange for as long as it likes and
// answers from any thread, whole with respond(), or piece by piece with begin_stream(), write() and
// finish().
//
// Thread safety: every method from any thread. Callbacks run on the connection's I/O thread, one at
// a time, and never inside the call that sets them. A callback that throws ends its connection. An
// exchange may outlive its server: then what is written is lost, and no callback comes.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/memory_account.h"
#include "http/message.h"

namespace quire::http {

class Exchange {
 public:
  // If nothing was answered, the client gets a 500. In the middle of a stream the connection is cut
  // off without the end of the chunks, so that the client can tell.
  virtual ~Exchange() = default;

  virtual const Request& request() const = 0;
  // Takes the body out of the request, to save a copy.
  virtual std::string take_body() = 0;
  // Takes the body's charge to Config::body_account, which would else end with the exchange. Null
  // where there is none.
  virtual std::unique_ptr<MemoryCharge> take_charge() = 0;

  // The whole answer. After it, or after begin_stream(), a second answer is a programmer's error.
  // Where one of the two throws (std::bad_alloc), nothing has been answered.
  virtual void respond(Response response) = 0;

  // Sends the head of a chunked answer; its body follows by write(). HTTP/1.0 knows no chunks: the
  // body ends with the connection. For HEAD, and a status without a body, what is written is
  // dropped.
  virtual void begin_stream(Response head) = 0;
  // Queues a piece of the body. Pieces that wait while a write is under way go out together. After
  // the client has gone: no effect.
  virtual void write(std::string piece) = 0;
  virtual void finish() = 0;

  // Bytes queued and not yet taken by the socket. A writer that finds more than
  // kStreamHighWater stops and waits for on_drain.
  virtual std::size_t buffered() const = 0;
  static constexpr std::size_t kStreamHighWater = 64 << 10;

  // Called each time that the queue falls below half of kStreamHighWater after it was above
  // kStreamHighWater.
  virtual void on_drain(std::function<void()> callback) = 0;
  // Called once, when the client has gone (closed its side, was reset, or read too slowly) before
  // the answer was complete; at once (through the I/O thread) if that has happened already. Never
  // after a complete answer. Both callbacks are dropped when the exchange ends.
  virtual void on_closed(std::function<void()> callback) = 0;
  virtual bool closed() const = 0;
  // Called once, when no more bytes of the answer go out. `delivered`: the system has taken all of
  // it; false: the client had gone before, or read too slowly. At once (through the I/O thread) if
  // that has happened already. The callback must not own the exchange.
  virtual void on_end(std::function<void(bool delivered)> callback) = 0;
};

}  // namespace quire::http
