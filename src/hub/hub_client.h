#pragma once
// GET over HTTP(S), for the hub: redirects, ranges, proxies (as libcurl reads them from the
// environment), and the token, which goes to the hub's own endpoint and nowhere else.
//
// Thread safety: one thread at a time; a stop may be requested from any.
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "hub/hub_settings.h"

namespace quire {

// An answer's status and headers.
struct HttpHead {
  int status = 0;
  std::string origin;     // who answered, or was to: "https://cdn.example.org"
  bool from_hub = false;  // that is the endpoint itself
  std::optional<int64_t> content_length;
  std::string content_range;
  std::string error_code;     // X-Error-Code: "GatedRepo", ...
  std::string error_message;  // X-Error-Message
  std::string rate_limit;     // RateLimit: "\"api\";r=0;t=55"
  int64_t retry_after_s = 0;  // 0: not said
};

// Takes the body of a 2xx answer. Exceptions of either function come out of get().
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  // Once, before the body. False ends the transfer.
  virtual bool start(const HttpHead& head) = 0;
  virtual bool write(std::string_view bytes) = 0;
};

struct HttpResult {
  enum class End {
    kAnswered,     // `head` holds a status; if it is 2xx, the sink took the whole body
    kRefused,      // the sink ended it
    kCut,          // the connection broke, or was silent for too long
    kUnreachable,  // no connection was made
    kFailed,       // it cannot work: a certificate, a redirect that is refused
    kStopped,      // a stop was requested
  };
  End end = End::kFailed;
  HttpHead head;
  std::string problem;  // a clause for a message, unless answered
};

class HubClient {
 public:
  // Throws Error if libcurl cannot be set up.
  explicit HubClient(HubSettings settings);
  ~HubClient();
  HubClient(const HubClient&) = delete;
  HubClient& operator=(const HubClient&) = delete;

  // Gets `url` from byte `offset` on. Reacts to a stop within about a second.
  HttpResult get(const std::string& url, int64_t offset, HttpSink& sink,
                 const std::stop_token& stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `text` as a part of a URL's path; a slash stays one if `keep_slashes`.
std::string url_encode(std::string_view text, bool keep_slashes);

}  // namespace quire
