#pragma once
// Turns the response to one streamed completion into a RequestResult: whether it is right, what is
// wrong with it, and when its tokens came. It knows nothing of sockets or clocks.
//
// Thread safety: one thread at a time.
#include <cstddef>
#include <string>
#include <string_view>

#include "loadgen/request.h"
#include "loadgen/sse_reader.h"
#include "loadgen/stream_chunk.h"

namespace quire::loadgen {

class ResponseReader : private SseReader::Sink {
 public:
  // The most output events and bytes of text that a response may have.
  static constexpr int64_t kMaxOutputEvents = int64_t{1} << 24;
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  // `keep_text` says whether the result's text is wanted. Times are seconds on any one clock.
  ResponseReader(double sent_s, bool keep_text);
  ~ResponseReader() override = default;
  ResponseReader(const ResponseReader&) = delete;
  ResponseReader& operator=(const ResponseReader&) = delete;

  // The status and the content type, before the first body bytes.
  void on_headers(int status, std::string_view content_type);
  // False: the rest is not needed, and the transfer may be cut.
  bool on_body(std::string_view bytes, double now_s);
  // The response has ended: normally, or with an `error` of the transfer. `status` is for a
  // response without a body, which had no on_headers().
  RequestResult finish(int status, std::string_view error, double now_s);

 private:
  enum class Kind { kUnknown, kStream, kErrorBody, kNoStream };

  bool on_event(std::string_view data) override;
  void record_output();
  void fail(std::string message);

  double sent_s_;
  bool keep_text_;
  SseReader sse_;
  Kind kind_ = Kind::kUnknown;
  StreamChunk chunk_;
  std::string body_;  // the start of one that is no stream
  double now_s_;      // when the bytes being read arrived
  bool done_ = false;
  bool failed_ = false;
  RequestResult result_;
};

}  // namespace quire::loadgen
