#include "loadgen/http_client.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "quire/error.h"

namespace quire::loadgen {
namespace {

// Connections kept for the next request; libcurl keeps as many as it has handles at most.
constexpr long kMaxIdleConnections = 1L << 20;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string content_type_of(CURL* easy) {
  const char* type = nullptr;
  curl_easy_getinfo(easy, CURLINFO_CONTENT_TYPE, &type);
  return type == nullptr ? "" : type;
}

int status_of(CURL* easy) {
  long status = 0;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

std::optional<double> retry_after_of(CURL* easy) {
  curl_off_t seconds = 0;
  curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &seconds);
  if (seconds <= 0) return std::nullopt;
  return static_cast<double>(seconds);
}

}  // namespace

struct HttpClient::Transfer {
  CURL* easy;
  Handler* handler;
  bool has_headers = false;
};

HttpClient::HttpClient(HttpOptions options, int wake_fd)
    : options_(std::move(options)),
      headers_(make_headers(options_)),
      multi_(curl_multi_init()),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      wake_fd_(wake_fd) {
  check(multi_ != nullptr, "libcurl has memory for a multi handle");
  if (epoll_fd_ < 0) throw Error(fmt::format("cannot make an epoll: {}", std::strerror(errno)));
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, on_socket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, on_timer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMaxIdleConnections);
  curl_multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_NOTHING));
  if (wake_fd >= 0) check(watch(wake_fd, CURL_POLL_IN, /*known=*/false), "epoll takes wake_fd");
}

HttpClient::~HttpClient() {
  for (const auto& [easy, transfer] : transfers_) {
    curl_multi_remove_handle(multi_, easy);
    curl_easy_cleanup(easy);
  }
  for (CURL* easy : idle_) curl_easy_cleanup(easy);
  curl_multi_cleanup(multi_);
  curl_slist_free_all(headers_);
  close(epoll_fd_);
}

CURL* HttpClient::idle_handle() {
  if (idle_.empty()) {
    CURL* easy = curl_easy_init();
    check(easy != nullptr, "libcurl has memory for a handle");
    return easy;
  }
  CURL* easy = idle_.back();
  idle_.pop_back();
  return easy;
}

void HttpClient::post(const std::string& path, std::string_view body, Handler& handler) {
  CURL* easy = idle_handle();
  const auto [place, is_new] =
      transfers_.emplace(easy, Transfer{.easy = easy, .handler = &handler});
  check(is_new, "an idle handle has no transfer");
  configure(easy, options_, headers_, options_.base_url + path);
  curl_easy_setopt(easy, CURLOPT_POST, 1L);
  curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &place->second);
  check(curl_multi_add_handle(multi_, easy) == CURLM_OK, "libcurl takes a request");
}

size_t HttpClient::on_write(char* bytes, size_t size, size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  if (!self.has_headers) {
    self.has_headers = true;
    self.handler->on_headers(status_of(self.easy), content_type_of(self.easy));
  }
  return self.handler->on_body({bytes, size * count}) ? size * count : 0;
}

int HttpClient::on_timer(CURLM* /*multi*/, long timeout_ms, void* client) {
  auto& self = *static_cast<HttpClient*>(client);
  self.timer_s_ =
      timeout_ms < 0 ? std::nullopt : std::optional(now() + static_cast<double>(timeout_ms) * 1e-3);
  return 0;
}

int HttpClient::on_socket(CURL* /*easy*/, curl_socket_t socket, int what, void* client,
                          void* known) {
  auto& self = *static_cast<HttpClient*>(client);
  if (!self.watch(socket, what, known != nullptr)) return -1;
  if (known == nullptr) curl_multi_assign(self.multi_, socket, client);
  return 0;
}

bool HttpClient::watch(curl_socket_t socket, int what, bool known) {
  epoll_event event{};
  event.data.fd = socket;
  if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
  if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
  const int operation = what == CURL_POLL_REMOVE ? EPOLL_CTL_DEL
                        : known                  ? EPOLL_CTL_MOD
                                                 : EPOLL_CTL_ADD;
  // A socket that is to be forgotten may be closed already.
  return epoll_ctl(epoll_fd_, operation, socket, &event) == 0 || operation == EPOLL_CTL_DEL;
}

void HttpClient::socket_action(curl_socket_t socket, int events) {
  int num_running = 0;
  const CURLMcode code = curl_multi_socket_action(multi_, socket, events, &num_running);
  if (code != CURLM_OK) {
    throw Error(fmt::format("cannot go on with the connections: {} ({})", curl_multi_strerror(code),
                            std::strerror(errno)));
  }
}

void HttpClient::wait(double timeout_s) {
  if (timer_s_) timeout_s = std::min(timeout_s, *timer_s_ - now());
  const auto timeout_ms = static_cast<int>(std::ceil(std::clamp(timeout_s, 0.0, 3600.0) * 1e3));
  std::array<epoll_event, 256> events;
  const int count =
      epoll_wait(epoll_fd_, events.data(), static_cast<int>(events.size()), timeout_ms);
  if (count < 0 && errno != EINTR) {
    throw Error(fmt::format("cannot wait for connections: {}", std::strerror(errno)));
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.fd == wake_fd_) continue;
    int what = 0;
    if ((event.events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
    if ((event.events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_ERR;
    socket_action(event.data.fd, what);
  }
  if (timer_s_ && *timer_s_ <= now()) {
    timer_s_.reset();
    socket_action(CURL_SOCKET_TIMEOUT, 0);
  }
  end_transfers();
}

void HttpClient::end_transfers() {
  int num_left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &num_left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* easy = message->easy_handle;
    const CURLcode code = message->data.result;  // gone once the handle is removed
    const auto place = transfers_.find(easy);
    check(place != transfers_.end(), "a transfer that ends was posted");
    Handler& handler = *place->second.handler;
    const int status = status_of(easy);
    const std::optional<double> retry_after_s = retry_after_of(easy);
    curl_multi_remove_handle(multi_, easy);
    transfers_.erase(place);
    idle_.push_back(easy);
    handler.on_end(status, code == CURLE_OK ? "" : transfer_error(code, options_), retry_after_s);
  }
}

}  // namespace quire::loadgen
