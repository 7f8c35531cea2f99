#pragma once
// A request as it came in and a response as it goes out.
//
// Thread safety: plain values.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::http {

using Headers = std::vector<std::pair<std::string, std::string>>;  // in order; names in any case

struct Request {
  std::string method;  // "GET", "POST", ...
  std::string path;    // percent-decoded, without the query
  std::string query;   // after "?", as it came
  // The host and port of a target "http://HOST:PORT/PATH", for which the request is, whatever its
  // header Host says; empty where the target is a path.
  std::string authority{};
  Headers headers;
  std::string body;    // whole; never longer than Limits::max_body_bytes
  std::string remote;  // the peer's address, without its port
  bool tls = false;

  // The first header of that name, compared without case; nothing where there is none.
  std::optional<std::string_view> header(std::string_view name) const;
};

struct Response {
  int status = 200;
  Headers headers;  // besides Content-Length, Date, Server and Connection, which the server writes
  std::string content_type = "application/json";
  std::string body;
};

// "OK", "Not Found"; "Unknown" for a status that HTTP has no name for.
std::string_view reason_phrase(int status);

}  // namespace quire::http
