#pragma once
// One client's connection: reads requests, hands them to the handler one at a time, writes the
// answers, and notices at once when the client leaves. What carries the bytes (a plain socket or
// TLS) is in the derived classes (stream_connection.h).
//
// A read is under way unless the client has pipelined more than Limits::max_pipelined_bytes.
// Deadlines are plain values that the loop looks at once a tick: no timer has to be set or
// cancelled for a request.
//
// Thread safety: everything only on the connection's I/O thread.
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_account.h"
#include "http/answer.h"
#include "http/io_loop.h"
#include "http/request_parser.h"
#include "http/server_context.h"

namespace quire::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<IoLoop> loop, std::shared_ptr<ServerContext> server);
  virtual ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Serves requests; `tls` says that a handshake comes first.
  void start(std::string remote, bool tls);
  // Answers 503 to whatever the client wants, and ends.
  void start_rejecting();
  // Ends it, if no request is on it.
  void end_if_idle();
  // Ends it now, whatever is on it.
  void cut();
  void check_deadlines(Clock::time_point now);

  // For its Answer: writes what is queued, unless a write is under way.
  void flush();
  // For its Answer: that was left half done, or the client reads too slowly.
  void on_cut_off(bool slow_reader);

  // For its loop, which keeps it in a table.
  std::size_t index() const { return index_; }
  void set_index(std::size_t index) { index_ = index; }

 protected:
  // Each starts one operation. When it ends, the on_ function of the same name is called, never
  // inside this call.
  virtual void async_handshake() = 0;
  virtual void async_read(char* data, std::size_t size) = 0;
  virtual void async_write(std::string_view bytes) = 0;
  virtual void async_end_output() = 0;  // tells the client that nothing more comes
  virtual void close_socket() = 0;
  // Whether the client has closed its sending side, or is gone: for when no read is under way.
  virtual bool peer_closed() = 0;

  // Exceptions of these (an allocation that failed, a callback's exception) end the connection.
  void on_handshake(bool ok);
  // Instead of on_handshake(): the client speaks plain HTTP, and from here on so does this
  // connection.
  void on_plain_request();
  void on_read(bool ok, std::size_t size);
  void on_write(bool ok, std::size_t size);
  void on_end_output();  // the client has seen it, as far as TLS can tell

 private:
  enum class State {
    kHandshake,
    kReading,    // waits for a request or reads one
    kAnswering,  // the handler has it, or its answer is being written
    kFailing,    // the answer to a request that cannot be read is being written
    kLingering,  // waits for the client to take the last answer and to close its side
    kClosed,
  };

  template <class Step>
  void guarded(Step step);
  void read_more();
  bool input_full() const;
  void resume_reading();
  void on_input_closed();
  void take_input(std::string_view fresh);
  void parse_kept();
  void drop_input();
  std::size_t parse(std::string_view bytes);
  void on_partial_request();
  void count_received(std::size_t bytes);
  int64_t max_receiving_bytes() const;
  bool has_more_than_its_share() const;
  std::optional<ParseFailure> charge_body(std::size_t bytes);
  void set_read_deadline();
  bool wants_body();
  void refuse_body();
  void handle_request(Request request, bool keep_alive);
  void next_request();
  void write_continue();
  void fail(const ParseFailure& failure);
  void write_failure();
  void start_write();
  void on_written();
  void finish_answer();
  void linger();
  void close();

  const std::shared_ptr<IoLoop> loop_;
  const std::shared_ptr<ServerContext> server_;
  std::size_t index_ = 0;
  State state_ = State::kReading;
  std::string remote_;
  bool tls_ = false;

  std::unique_ptr<char[]> read_buffer_;
  std::string input_;  // received, not yet used: [input_begin_, size)
  std::size_t input_begin_ = 0;
  std::unique_ptr<RequestParser> parser_;
  int64_t counted_bytes_ = 0;             // of the body, in ServerContext::receiving_bytes
  std::unique_ptr<MemoryCharge> charge_;  // of the body, while it comes
  bool continue_sent_ = false;
  bool input_closed_ = false;
  bool reading_paused_ = false;
  bool head_checked_ = false;
  bool body_refused_ = false;  // what still comes of it is dropped

  std::shared_ptr<Answer> answer_;
  bool last_taken_ = false;
  bool writing_ = false;
  std::string failure_;  // waits until what is being written has gone
  std::string output_;   // [output_begin_, size) is being written
  std::size_t output_begin_ = 0;

  RequestParser::Stage deadline_stage_ = RequestParser::Stage::kComplete;
  Clock::time_point read_deadline_ = Clock::time_point::max();
  Clock::time_point write_deadline_ = Clock::time_point::max();
};

}  // namespace quire::http
