#include "http/answer.h"

#include <array>
#include <charconv>
#include <exception>
#include <utility>

#include "base/check.h"
#include "http/connection.h"
#include "http/exchange.h"
#include "http/io_loop.h"
#include "http/server_context.h"

namespace quire::http {
namespace {

// Room for a chunk's size line in front of its bytes: 16 hexadecimal digits, CR, LF.
constexpr std::size_t kChunkHeadRoom = 18;
// A buffer that a burst has grown beyond this is given back.
constexpr std::size_t kMaxKeptCapacity = 128 << 10;

// The size line of a chunk of `size` bytes, right-aligned. Returns where it begins.
std::size_t write_chunk_head(std::array<char, kChunkHeadRoom>& room, std::size_t size) {
  std::size_t begin = kChunkHeadRoom;
  room[--begin] = '\n';
  room[--begin] = '\r';
  do {
    room[--begin] = "0123456789abcdef"[size % 16];
    size /= 16;
  } while (size != 0);
  return begin;
}

}  // namespace

Answer::Answer(std::shared_ptr<IoLoop> loop, std::shared_ptr<const ServerContext> server,
               AnswerFormat format, Connection& connection)
    : loop_(std::move(loop)),
      server_(std::move(server)),
      format_(format),
      connection_(&connection) {}

void Answer::respond(Response response) {
  std::unique_lock lock(mutex_);
  check(state_ == State::kUnanswered, "a request is answered twice");
  queue_whole(lock, response);
}

void Answer::queue_whole(std::unique_lock<std::mutex>& lock, const Response& response) {
  std::string whole;
  if (!this->closed()) {
    const Framing framing = status_has_body(response.status) ? Framing::kLength : Framing::kNone;
    whole = response_head(response, settle_connection(framing), framing);
    if (framing == Framing::kLength && !format_.head_only) whole += response.body;
  }
  // Nothing fails from here on. The callbacks may own the exchange: destroyed once the lock is
  // free.
  const std::function<void()> drain = std::exchange(on_drain_, nullptr);
  const std::function<void()> closed = std::exchange(on_closed_, nullptr);
  state_ = State::kComplete;
  if (this->closed()) return lock.unlock();
  framing_ = Framing::kNone;  // the head holds it all
  head_ = std::move(whole);
  buffered_.store(head_.size(), std::memory_order_relaxed);
  wake(lock);
}

void Answer::begin_stream(Response head) {
  std::unique_lock lock(mutex_);
  check(state_ == State::kUnanswered, "a request is answered twice");
  const Framing framing = !status_has_body(head.status) ? Framing::kNone
                          : format_.http_1_0            ? Framing::kUntilClose
                                                        : Framing::kChunked;
  std::string text = response_head(head, settle_connection(framing), framing);
  pending_.assign(kChunkHeadRoom, '\0');
  state_ = State::kStreaming;  // nothing fails from here on
  if (closed()) return;
  head_ = std::move(text);
  framing_ = format_.head_only ? Framing::kNone : framing;
  buffered_.store(head_.size(), std::memory_order_relaxed);
  wake(lock);
}

AnswerFormat Answer::settle_connection(Framing framing) {
  AnswerFormat format = format_;
  if (framing == Framing::kUntilClose || server_->stopping.load()) format.keep_alive = false;
  closes_connection_ = !format.keep_alive;
  return format;
}

void Answer::write(std::string_view piece) {
  std::unique_lock lock(mutex_);
  check(state_ == State::kStreaming, "a body is written to outside its stream");
  if (closed() || piece.empty() || framing_ == Framing::kNone || too_much_) return;
  // Bytes that waited before this piece are bytes that the client was slow to read.
  if (buffered_.load(std::memory_order_relaxed) > server_->config.limits.max_buffered_bytes) {
    too_much_ = true;
    lock.unlock();
    return cut_off(/*slow_reader=*/true);
  }
  pending_.append(piece);
  const std::size_t buffered =
      buffered_.fetch_add(piece.size(), std::memory_order_relaxed) + piece.size();
  if (buffered > Exchange::kStreamHighWater) above_high_water_.store(true);
  wake(lock);
}

void Answer::finish() {
  std::unique_lock lock(mutex_);
  check(state_ == State::kStreaming, "a stream is finished that was not begun, or twice");
  const std::function<void()> drain = std::exchange(on_drain_, nullptr);
  const std::function<void()> closed = std::exchange(on_closed_, nullptr);
  state_ = State::kComplete;
  if (this->closed()) return lock.unlock();
  wake(lock);
}

void Answer::abandon() noexcept {
  try {
    answer_for_handler();
  } catch (const std::exception&) {
    lost_.store(true);
  }
}

void Answer::answer_for_handler() {
  std::unique_lock lock(mutex_);
  if (state_ == State::kUnanswered) {
    return queue_whole(lock, server_->error_response(500, "The server gave no answer."));
  }
  const std::function<void()> drain = std::exchange(on_drain_, nullptr);
  const std::function<void()> closed = std::exchange(on_closed_, nullptr);
  const bool half_answered = state_ == State::kStreaming && !this->closed();
  lock.unlock();
  if (half_answered) cut_off(/*slow_reader=*/false);
}

void Answer::wake(std::unique_lock<std::mutex>& lock) {
  const bool wake = !std::exchange(busy_, true);
  lock.unlock();
  if (wake) loop_->wake(shared_from_this());
}

// Never inside the caller's call: it ends with callbacks.
void Answer::cut_off(bool slow_reader) {
  loop_->post([self = shared_from_this(), slow_reader] {
    if (self->connection_ != nullptr) self->connection_->on_cut_off(slow_reader);
  });
}

void Answer::on_drain(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  if (!delivered_) on_drain_.swap(callback);
}

void Answer::on_closed(std::function<void()> callback) {
  std::unique_lock lock(mutex_);
  if (state_ == State::kComplete) return;
  if (!closed()) {
    on_closed_.swap(callback);
    lock.unlock();
    return;
  }
  lock.unlock();
  loop_->post(std::move(callback));
}

void Answer::on_end(std::function<void(bool delivered)> callback) {
  std::unique_lock lock(mutex_);
  if (!delivered_) {
    on_end_.swap(callback);
    lock.unlock();
    return;
  }
  const bool delivered = *delivered_;
  lock.unlock();
  loop_->post([callback = std::move(callback), delivered] { callback(delivered); });
}

Answer::Taken Answer::take(std::string& buffer) {
  const std::lock_guard lock(mutex_);
  if (buffer.capacity() > kMaxKeptCapacity) {
    std::string().swap(buffer);
  } else {
    buffer.clear();
  }
  Taken taken;
  if (too_much_ || last_taken_) return taken;
  const std::size_t waiting =
      pending_.size() > kChunkHeadRoom ? pending_.size() - kChunkHeadRoom : 0;
  if (!head_.empty()) buffer.swap(head_);
  if (waiting > 0) taken.begin = take_pieces(buffer);
  if (state_ == State::kComplete) {
    if (framing_ == Framing::kChunked) buffer.append("0\r\n\r\n");
    taken.last = last_taken_ = true;
  }
  const std::size_t size = buffer.size() - taken.begin;
  if (size > Exchange::kStreamHighWater) above_high_water_.store(true);
  buffered_.store(size, std::memory_order_relaxed);
  if (size == 0 && !taken.last) busy_ = false;
  return taken;
}

std::size_t Answer::take_pieces(std::string& buffer) {
  std::array<char, kChunkHeadRoom> room{};
  const bool chunked = framing_ == Framing::kChunked;
  const std::size_t begin =
      chunked ? write_chunk_head(room, pending_.size() - kChunkHeadRoom) : kChunkHeadRoom;
  const std::string_view chunk_head(room.data() + begin, kChunkHeadRoom - begin);
  std::size_t buffer_begin = 0;
  if (buffer.empty()) {
    buffer.swap(pending_);
    chunk_head.copy(buffer.data() + begin, chunk_head.size());
    buffer_begin = begin;
  } else {
    buffer.append(chunk_head).append(pending_, kChunkHeadRoom);
  }
  pending_.assign(kChunkHeadRoom, '\0');
  if (chunked) buffer.append("\r\n");
  return buffer_begin;
}

void Answer::wrote(std::size_t bytes) {
  const std::size_t before = buffered_.fetch_sub(bytes, std::memory_order_relaxed);
  if (before - bytes >= Exchange::kStreamHighWater / 2 || !above_high_water_.exchange(false)) {
    return;
  }
  std::function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    callback = on_drain_;
  }
  if (callback) callback();
}

void Answer::end(bool gone) {
  connection_ = nullptr;
  std::unique_lock lock(mutex_);
  const std::function<void()> drain = std::exchange(on_drain_, nullptr);
  const std::function<void()> closed = std::exchange(on_closed_, nullptr);
  closed_.store(gone, std::memory_order_release);
  if (gone) buffered_.store(0, std::memory_order_relaxed);
  pending_ = {};
  head_ = {};
  const bool call = gone && state_ != State::kComplete && closed;
  const std::function<void(bool)> on_end = std::exchange(on_end_, nullptr);
  delivered_ = !gone;
  lock.unlock();
  // Their exceptions (no memory, say) have nothing left to end.
  const auto call_alone = [](const auto& callback, auto... arguments) {
    try {
      callback(arguments...);
    } catch (const std::exception&) {
      return;
    }
  };
  if (call) call_alone(closed);
  if (on_end) call_alone(on_end, !gone);
}

bool Answer::complete() const {
  const std::lock_guard lock(mutex_);
  return state_ == State::kComplete;
}

void Answer::flush() {
  if (connection_ != nullptr) connection_->flush();
}

}  // namespace quire::http
