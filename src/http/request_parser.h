#pragma once
// Bytes in, one Request out, or the status and the sentence that say why not. It knows no sockets,
// so a fuzzer can drive it.
//
// Stricter than RFC 9112 asks where leniency lets two readers of the same bytes see different
// requests: Content-Length together with Transfer-Encoding, repeated or listed Content-Length,
// any Transfer-Encoding but "chunked", a second Host header.
//
// Thread safety: one thread at a time. One object reads one request.
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "http/limits.h"
#include "http/message.h"

namespace quire::http {

// Why bytes did not become a request.
struct ParseFailure {
  int status = 400;
  std::string message{};
};

class RequestParser {
 public:
  enum class Stage { kNothing, kHead, kBody, kComplete, kFailed };

  explicit RequestParser(const Limits& limits);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Reads from the front of `bytes` and returns how many bytes it has used. The rest is part of a
  // head, never longer than max_header_bytes, and must be given again with what follows. Uses
  // nothing once complete.
  std::size_t feed(std::string_view bytes);

  Stage stage() const;
  // At Stage::kFailed.
  const ParseFailure& failure() const;

  // Whether the head has come and is in order, whatever its body is.
  bool head_is_complete() const;

  // Once the head is complete.
  bool expects_continue() const;  // the client waits for "100 Continue" before it sends the body
  bool keep_alive() const;        // what the client's version and its Connection header say
  bool http_1_0() const;

  // Once the head is complete: the request, with as much of its body as has come.
  const Request& request() const;

  // At Stage::kComplete, once. `remote` and `tls` are not set, as the bytes do not say them.
  Request take();
  // Instead of take(), once the head is complete: the request without its body, even where the body
  // is what failed.
  Request take_head();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Decodes %XX; false where what follows a '%' is not two hexadecimal digits, or is 00.
bool percent_decode(std::string_view encoded, std::string& decoded);

}  // namespace quire::http
