#pragma once
// Many HTTP requests at a time from one thread: libcurl's socket interface on epoll, connections
// kept for the next request.
//
// Thread safety: one thread at a time. Handlers are called from wait() only.
#include <curl/curl.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loadgen/http_options.h"

namespace quire::loadgen {

class HttpClient {
 public:
  // The callbacks of one request. It must live until on_end().
  class Handler {
   public:
    virtual ~Handler() = default;
    // Before the first bytes of the body.
    virtual void on_headers(int status, std::string_view content_type) = 0;
    // False cuts the transfer.
    virtual bool on_body(std::string_view bytes) = 0;
    // Called once, last. `error` is empty if the response arrived whole; `status` is 0 if there was
    // none. New requests may be posted from here.
    virtual void on_end(int status, std::string_view error,
                        std::optional<double> retry_after_s) = 0;
  };

  // `wake_fd`, unless negative, makes wait() return while it is readable.
  HttpClient(HttpOptions options, int wake_fd);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // `body` and `handler` must live until the handler's on_end(). Requests that have not ended when
  // the client is destroyed are cut without a call.
  void post(const std::string& path, std::string_view body, Handler& handler);

  // Makes progress on all transfers, waiting up to `timeout_s` for something to happen, and calls
  // handlers.
  void wait(double timeout_s);

 private:
  struct Transfer;

  static int on_socket(CURL* easy, curl_socket_t socket, int what, void* client, void* known);
  static int on_timer(CURLM* multi, long timeout_ms, void* client);
  static size_t on_write(char* bytes, size_t size, size_t count, void* transfer);

  // False if the system refuses.
  bool watch(curl_socket_t socket, int what, bool known);
  void socket_action(curl_socket_t socket, int events);
  void end_transfers();
  CURL* idle_handle();

  HttpOptions options_;
  curl_slist* headers_;
  CURLM* multi_;
  int epoll_fd_;
  int wake_fd_;
  std::optional<double> timer_s_;  // when libcurl wants to be called next
  std::unordered_map<CURL*, Transfer> transfers_;
  std::vector<CURL*> idle_;
};

}  // namespace quire::loadgen
