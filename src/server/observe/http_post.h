#pragma once
// POSTs JSON to one address over HTTP(S), one request at a time, on a connection that is kept.
// Proxies are those that libcurl reads from the environment, but never for this machine itself.
//
// Thread safety: one thread at a time.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace quire::server {

struct HttpPostResult {
  int status = 0;         // of the answer; 0: none came
  std::string problem{};  // why none came, a clause for a message
};

class HttpPost {
 public:
  // Throws Error if libcurl cannot be set up.
  explicit HttpPost(std::string url);
  ~HttpPost();
  HttpPost(const HttpPost&) = delete;
  HttpPost& operator=(const HttpPost&) = delete;

  // Waits for the answer and drops its body. Ends after `at_most`, or when `give_up` returns true;
  // it is asked every second and whenever bytes move.
  HttpPostResult send(std::string_view body, std::chrono::milliseconds at_most,
                      const std::function<bool()>& give_up);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The address to post traces to: `url`, with OTLP's /v1/traces where it has no path. Throws Error
// unless it is an http or https URL with a host, and without a user or a fragment.
std::string otlp_traces_url(const std::string& url);

}  // namespace quire::server
