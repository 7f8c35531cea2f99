#include "http/connection.h"

#include <exception>
#include <utility>

#include "http/exchange_impl.h"

namespace quire::http {
namespace {

constexpr std::size_t kReadBufferBytes = 8 << 10;
// How long a client may take to read the last answer and to close its side. A socket closed with
// input unread would be reset, which can destroy that answer on its way.
constexpr std::chrono::seconds kLingerTime{5};

}  // namespace

Connection::Connection(std::shared_ptr<IoLoop> loop, std::shared_ptr<ServerContext> server)
    : loop_(std::move(loop)),
      server_(std::move(server)),
      read_buffer_(new char[kReadBufferBytes]),
      parser_(std::make_unique<RequestParser>(server_->config.limits)) {}

Connection::~Connection() = default;

// An exception must not leave the loop, nor leave this connection without an operation under way.
template <class Step>
void Connection::guarded(Step step) {
  try {
    step();
  } catch (const std::exception&) {
    close();
  }
}

void Connection::start(std::string remote, bool tls) {
  remote_ = std::move(remote);
  tls_ = tls;
  ++server_->open_connections;
  loop_->add(shared_from_this());
  if (server_->closing.load()) return close();
  guarded([&] {
    if (tls) {
      state_ = State::kHandshake;
      read_deadline_ = Clock::now() + server_->config.limits.header_timeout;
      async_handshake();
    } else {
      set_read_deadline();
      read_more();
    }
  });
}

void Connection::on_handshake(bool ok) {
  guarded([&] {
    if (state_ != State::kHandshake) return;
    if (!ok) {
      ++server_->malformed_requests;
      return close();
    }
    state_ = State::kReading;
    set_read_deadline();
    read_more();
  });
}

void Connection::on_plain_request() {
  guarded([&] {
    ++server_->malformed_requests;
    fail({400, "This port speaks HTTPS and was sent plain HTTP: use https://."});
    read_more();
  });
}

void Connection::start_rejecting() {
  ++server_->open_connections;
  loop_->add(shared_from_this());
  guarded([&] {
    fail({503, "The server has as many connections as it takes; try again later."});
    read_more();
  });
}

void Connection::end_if_idle() {
  const bool idle =
      state_ == State::kHandshake || (state_ == State::kReading && input_.empty() &&
                                      parser_->stage() == RequestParser::Stage::kNothing);
  if (idle) cut();
}

void Connection::cut() {
  guarded([&] { close(); });
}

void Connection::on_cut_off(bool slow_reader) {
  if (slow_reader) ++server_->dropped_slow_readers;
  cut();
}

void Connection::check_deadlines(Clock::time_point now) {
  guarded([&] {
    if (now >= write_deadline_) {
      ++server_->dropped_slow_readers;
      return close();
    }
    if (answer_ && answer_->lost()) return close();
    if (reading_paused_ && peer_closed()) return on_input_closed();
    if (now < read_deadline_) return;
    const bool request_begun =
        state_ == State::kReading && parser_->stage() != RequestParser::Stage::kNothing;
    if (request_begun || state_ == State::kHandshake) ++server_->timed_out_connections;
    if (request_begun) return fail({408, "The request took too long to arrive."});
    close();
  });
}

// ---- Reading

void Connection::read_more() {
  reading_paused_ = false;
  async_read(read_buffer_.get(), kReadBufferBytes);
}

void Connection::on_read(bool ok, std::size_t size) {
  guarded([&] {
    if (state_ == State::kClosed) return;
    if (!ok) return on_input_closed();
    take_input({read_buffer_.get(), size});
    if (state_ == State::kClosed) return;
    reading_paused_ = input_full();
    if (!reading_paused_) read_more();
  });
}

bool Connection::input_full() const {
  return state_ == State::kAnswering &&
         input_.size() - input_begin_ > server_->config.limits.max_pipelined_bytes;
}

void Connection::resume_reading() {
  if (reading_paused_ && state_ != State::kClosed && !input_full()) read_more();
}

// The client has gone, or has closed its sending side; what is complete is still written to it.
void Connection::on_input_closed() {
  input_closed_ = true;
  const bool completed =
      state_ == State::kFailing || (state_ == State::kAnswering && answer_->complete());
  if (!completed) close();
}

void Connection::take_input(std::string_view fresh) {
  // Of no use any more.
  if (state_ == State::kFailing || state_ == State::kLingering || body_refused_) return;
  if (state_ == State::kReading && input_.empty()) {
    const std::size_t used = parse(fresh);
    input_.append(fresh.substr(used));
  } else {
    input_.erase(0, std::exchange(input_begin_, 0));
    input_.append(fresh);
    if (state_ == State::kReading) parse_kept();
  }
  if (body_refused_) drop_input();
}

void Connection::parse_kept() {
  input_begin_ += parse(std::string_view(input_).substr(input_begin_));
  if (input_begin_ >= input_.size()) drop_input();
}

void Connection::drop_input() {
  std::string().swap(input_);
  input_begin_ = 0;
}

std::size_t Connection::parse(std::string_view bytes) {
  const std::size_t used = parser_->feed(bytes);
  switch (parser_->stage()) {
    case RequestParser::Stage::kComplete:
      handle_request(parser_->take(), parser_->keep_alive());
      break;
    case RequestParser::Stage::kFailed:
      // Who may not send a body does not learn what is wrong with it.
      if (parser_->head_is_complete() && !wants_body()) {
        refuse_body();
        break;
      }
      ++server_->malformed_requests;
      fail(parser_->failure());
      break;
    default:
      on_partial_request();
  }
  return used;
}

void Connection::on_partial_request() {
  set_read_deadline();
  if (parser_->stage() != RequestParser::Stage::kBody) return;
  if (!wants_body()) return refuse_body();
  count_received(parser_->request().body.size());
  if (server_->receiving_bytes.total() > max_receiving_bytes()) {
    return fail({503, "The server holds as many request bodies as it takes; try later."});
  }
  if (has_more_than_its_share()) {
    return fail({429,
                 "Other requests from this address have half of the memory for request bodies; try "
                 "again later."});
  }
  if (const auto failure = charge_body(parser_->request().body.size())) return fail(*failure);
  if (parser_->expects_continue() && !continue_sent_) write_continue();
}

void Connection::refuse_body() {
  body_refused_ = true;
  handle_request(parser_->take_head(), /*keep_alive=*/false);
}

void Connection::count_received(std::size_t bytes) {
  const auto now = static_cast<int64_t>(bytes);
  server_->receiving_bytes.change(remote_, now - counted_bytes_);
  counted_bytes_ = now;
}

int64_t Connection::max_receiving_bytes() const {
  return static_cast<int64_t>(server_->config.limits.max_receiving_bytes);
}

// One address leaves others half, but may always send a single body.
bool Connection::has_more_than_its_share() const {
  const int64_t of_address = server_->receiving_bytes.of(remote_);
  if (of_address == counted_bytes_) return false;
  int64_t most = max_receiving_bytes();
  if (server_->config.body_account) {
    most = std::min(most, server_->config.body_account()->limit());
  }
  return of_address > most / 2;
}

// Why there is no room for so much of a body, if there is none.
std::optional<ParseFailure> Connection::charge_body(std::size_t bytes) {
  if (!server_->config.body_account || bytes == 0) return std::nullopt;
  if (!charge_) charge_ = std::make_unique<MemoryCharge>(server_->config.body_account());
  const auto wanted = static_cast<int64_t>(bytes);
  if (wanted > charge_->account().limit()) {
    return ParseFailure{413, "The request body is longer than the memory of all requests."};
  }
  if (charge_->resize(wanted)) return std::nullopt;
  return ParseFailure{
      429, "Other requests have the memory that this request's body needs; try again later."};
}

// A stage has this much time in all, not from byte to byte.
void Connection::set_read_deadline() {
  const RequestParser::Stage stage = parser_->stage();
  if (deadline_stage_ == stage) return;
  deadline_stage_ = stage;
  const Limits& limits = server_->config.limits;
  const auto timeout = stage == RequestParser::Stage::kNothing ? limits.idle_timeout
                       : stage == RequestParser::Stage::kHead  ? limits.header_timeout
                                                               : limits.body_timeout;
  read_deadline_ = Clock::now() + timeout;
}

bool Connection::wants_body() {
  if (std::exchange(head_checked_, true) || !server_->config.wants_body) return true;
  return server_->config.wants_body(parser_->request());
}

void Connection::handle_request(Request request, bool keep_alive) {
  read_deadline_ = Clock::time_point::max();
  count_received(request.body.size());  // until it is answered
  // Where the last piece does not fit, the handler says so when it charges the rest.
  static_cast<void>(charge_body(request.body.size()));
  request.remote = remote_;
  request.tls = tls_;
  const AnswerFormat format{.http_1_0 = parser_->http_1_0(),
                            .keep_alive = keep_alive,
                            .head_only = request.method == "HEAD"};
  answer_ = std::make_shared<Answer>(loop_, server_, format, *this);
  ++server_->num_active;
  state_ = State::kAnswering;
  auto exchange = std::make_shared<ExchangeImpl>(std::move(request), std::move(charge_), answer_);
  try {
    server_->handler(std::move(exchange));
  } catch (const std::exception&) {
    // The exchange went with it, unless the handler has kept it: a 500, or cut off in the middle.
  }
}

void Connection::next_request() {
  count_received(0);
  parser_ = std::make_unique<RequestParser>(server_->config.limits);
  deadline_stage_ = RequestParser::Stage::kComplete;
  continue_sent_ = false;
  head_checked_ = false;
  state_ = State::kReading;
  set_read_deadline();
  if (!input_.empty()) parse_kept();
  resume_reading();
}

// ---- Writing

void Connection::write_continue() {
  continue_sent_ = true;
  output_ = "HTTP/1.1 100 Continue\r\n\r\n";
  output_begin_ = 0;
  start_write();
}

void Connection::fail(const ParseFailure& failure) {
  state_ = State::kFailing;
  read_deadline_ = Clock::time_point::max();
  drop_input();
  count_received(0);
  const Response response = server_->error_response(failure.status, failure.message);
  failure_ = response_head(response, {.keep_alive = false}, Framing::kLength) + response.body;
  parser_.reset();  // and its part of the body
  charge_.reset();
  if (!writing_) write_failure();
  resume_reading();
}

void Connection::write_failure() {
  output_.swap(failure_);
  failure_.clear();
  output_begin_ = 0;
  start_write();
}

void Connection::flush() {
  if (writing_ || !answer_) return;
  guarded([&] {
    const Answer::Taken taken = answer_->take(output_);
    output_begin_ = taken.begin;
    last_taken_ = taken.last;
    if (output_begin_ < output_.size()) return start_write();
    // Not at once: this may be a call of the handler's, and the next request goes to the handler.
    if (taken.last) loop_->post([self = shared_from_this()] { self->on_write(true, 0); });
  });
}

void Connection::start_write() {
  writing_ = true;
  write_deadline_ = Clock::now() + server_->config.limits.write_timeout;
  async_write(std::string_view(output_).substr(output_begin_));
}

void Connection::on_write(bool ok, std::size_t size) {
  guarded([&] {
    if (state_ == State::kClosed) return;
    if (!ok) return close();
    output_begin_ += size;
    if (answer_) answer_->wrote(size);
    if (output_begin_ < output_.size()) return start_write();
    writing_ = false;
    write_deadline_ = Clock::time_point::max();
    on_written();
  });
}

void Connection::on_written() {
  if (!failure_.empty()) return write_failure();
  if (state_ == State::kFailing) return linger();
  if (state_ != State::kAnswering) return;  // that was "100 Continue"
  if (!last_taken_) return flush();
  finish_answer();
}

void Connection::finish_answer() {
  const std::shared_ptr<Answer> answer = std::exchange(answer_, nullptr);
  last_taken_ = false;
  --server_->num_active;
  answer->end(/*gone=*/false);
  if (answer->closes_connection() || server_->stopping.load()) return linger();
  if (input_closed_) return close();
  next_request();
}

// ---- Ending

void Connection::linger() {
  if (input_closed_) return close();
  state_ = State::kLingering;
  drop_input();
  read_deadline_ = Clock::now() + kLingerTime;
  resume_reading();
  async_end_output();
}

void Connection::on_end_output() {
  guarded([&] { close(); });
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  read_deadline_ = write_deadline_ = Clock::time_point::max();
  close_socket();
  parser_.reset();  // and its part of the body
  charge_.reset();
  count_received(0);
  --server_->open_connections;
  loop_->remove(*this);
  const std::shared_ptr<Answer> answer = std::exchange(answer_, nullptr);
  if (!answer) return;
  --server_->num_active;
  answer->end(/*gone=*/true);
}

}  // namespace quire::http
