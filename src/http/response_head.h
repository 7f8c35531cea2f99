#pragma once
// The bytes in front of a body.
//
// Thread safety: free functions.
#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace quire::http {

// The answer's form, as the request asks for it.
struct AnswerFormat {
  bool http_1_0 = false;
  bool keep_alive = true;
  bool head_only = false;  // the answer to HEAD: its headers are a GET's, its body is left out
};

// How the client learns where the body ends.
enum class Framing { kLength, kChunked, kUntilClose, kNone };

// A status that allows a body? 1xx, 204 and 304 do not.
bool status_has_body(int status);

// The status line and all headers, with the empty line at their end. Line ends and other control
// characters in the given headers become spaces, so a header that a handler echoes cannot split the
// answer.
std::string response_head(const Response& response, const AnswerFormat& format, Framing framing);

}  // namespace quire::http
