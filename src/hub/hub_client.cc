#include "hub/hub_client.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <ctime>

#include "base/curl_handles.h"
#include "base/lower_case.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr int kMaxRedirects = 10;
constexpr long kConnectTimeoutS = 30;
constexpr long kBufferBytes = 256 << 10;
constexpr size_t kMaxHeaderValue = 16 << 10;  // signed addresses take a few KiB

// Keeps a connection that its other side has closed from ending the process.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set_, &previous_);
  }
  ~WithoutSigpipe() {
    const timespec now{};
    if (!was_pending_) sigtimedwait(&set_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  sigset_t set_{};
  sigset_t previous_{};
  bool was_pending_ = false;
};

std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) !=
      CURLUE_OK) {
    return "";
  }
  return std::unique_ptr<char, FreeCurl>(text).get();
}

// "https://host:443": what a token may be shown to.
std::string origin_of(CURLU* url) {
  const std::string host = lower_case(url_part(url, CURLUPART_HOST));
  return fmt::format("{}://{}:{}", url_part(url, CURLUPART_SCHEME), host,
                     url_part(url, CURLUPART_PORT));
}

std::string origin_of(const std::string& text) {
  const CurlUrl url(curl_url());
  return curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK ? origin_of(url.get())
                                                                              : "";
}

// The origin without its scheme's default port.
std::string shown_origin(const std::string& origin) {
  for (const std::string_view port : {":443", ":80"}) {
    if (origin.starts_with(port == ":443" ? "https:" : "http:") && origin.ends_with(port)) {
      return origin.substr(0, origin.size() - port.size());
    }
  }
  return origin;
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// One GET as libcurl's callbacks see it.
class Transfer {
 public:
  Transfer(CURL* handle, HttpSink& sink, const std::stop_token& stop)
      : handle_(handle), sink_(sink), stop_(stop) {}

  void attach() {
    curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    curl_easy_setopt(handle_, CURLOPT_HEADERDATA, this);
    curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
    curl_easy_setopt(handle_, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(handle_, CURLOPT_XFERINFOFUNCTION, &Transfer::on_tick);
    curl_easy_setopt(handle_, CURLOPT_XFERINFODATA, this);
    curl_easy_setopt(handle_, CURLOPT_NOPROGRESS, 0L);
  }

  // After libcurl is done: an answer without a body still starts the sink.
  void finish(CURLcode code) {
    if (code == CURLE_OK && is_success()) start();
    if (failure_) std::rethrow_exception(failure_);
  }

  const HttpHead& head() const { return head_; }
  const std::string& location() const { return location_; }
  bool refused() const { return refused_; }

 private:
  bool is_success() const { return head_.status >= 200 && head_.status < 300; }

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    static_cast<Transfer*>(self)->take_header(std::string_view(data, size * count));
    return size * count;
  }
  static size_t on_body(char* data, size_t size, size_t count, void* self) {
    return static_cast<Transfer*>(self)->take_body(std::string_view(data, size * count))
               ? size * count
               : 0;
  }
  static int on_tick(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(self)->stop_.stop_requested() ? 1 : 0;
  }

  void take_header(std::string_view line) {
    if (line.starts_with("HTTP/")) {  // those of an interim answer are not the answer's
      head_ = {};
      location_.clear();
      const size_t space = line.find(' ');
      if (space != std::string_view::npos) {
        std::from_chars(line.data() + space + 1, line.data() + line.size(), head_.status);
      }
      return;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || line.size() > kMaxHeaderValue) return;
    const std::string_view name = line.substr(0, colon);
    const std::string_view value = trimmed(line.substr(colon + 1));
    const std::array<std::pair<std::string_view, std::string*>, 5> kept = {{
        {"location", &location_},
        {"content-range", &head_.content_range},
        {"x-error-code", &head_.error_code},
        {"x-error-message", &head_.error_message},
        {"ratelimit", &head_.rate_limit},
    }};
    for (const auto& [wanted, field] : kept) {
      if (same_in_lower_case(name, wanted)) *field = value;
    }
  }

  bool start() {
    if (started_) return true;
    started_ = true;
    curl_off_t length = -1;
    curl_easy_getinfo(handle_, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (length >= 0) head_.content_length = length;
    return call([&] { return sink_.start(head_); });
  }

  // The body of an answer that is no success is read, so that the connection can be used again, and
  // thrown away; one that goes on and on is cut.
  bool take_body(std::string_view bytes) {
    if (stop_.stop_requested()) return false;
    if (!is_success()) {
      discarded_ += bytes.size();
      return discarded_ <= kMaxDiscarded;
    }
    return start() && call([&] { return sink_.write(bytes); });
  }

  template <typename F>
  bool call(F function) {
    try {
      refused_ = !function();
    } catch (...) {  // an exception must not pass through libcurl, which is C
      failure_ = std::current_exception();
      refused_ = true;
    }
    return !refused_;
  }

  static constexpr size_t kMaxDiscarded = 1 << 20;

  CURL* handle_;
  HttpSink& sink_;
  const std::stop_token& stop_;
  HttpHead head_;
  std::string location_;
  std::exception_ptr failure_;
  size_t discarded_ = 0;
  bool started_ = false;
  bool refused_ = false;
};

}  // namespace

struct HubClient::State {
  CurlLibrary library;
  HubSettings settings;
  std::string token_origin;
  CurlHandle handle{curl_easy_init()};

  HttpResult get_once(CURLU* url, int64_t offset, HttpSink& sink, const std::stop_token& stop,
                      std::string& location);
  CurlList headers_for(const std::string& origin) const;
};

namespace {

HttpResult::End end_of(CURLcode code, bool refused, const std::stop_token& stop) {
  using End = HttpResult::End;
  if (stop.stop_requested()) return End::kStopped;
  if (refused) return End::kRefused;
  switch (code) {
    case CURLE_OK:
      return End::kAnswered;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
      return End::kUnreachable;
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_CERTPROBLEM:
      return End::kFailed;
    default:
      return End::kCut;
  }
}

}  // namespace

CurlList HubClient::State::headers_for(const std::string& origin) const {
  std::string authorization = "Authorization: Bearer " + settings.token;
  // Ranges and hashes are those of the file itself.
  CurlList headers(curl_slist_append(nullptr, "Accept-Encoding: identity"));
  if (headers && !settings.token.empty() && origin == token_origin) {
    curl_slist* longer = curl_slist_append(headers.get(), authorization.c_str());
    if (longer == nullptr) throw std::bad_alloc();
  }
  return headers;
}

HttpResult HubClient::State::get_once(CURLU* url, int64_t offset, HttpSink& sink,
                                      const std::stop_token& stop, std::string& location) {
  const WithoutSigpipe without_sigpipe;
  CURL* curl = handle.get();
  curl_easy_reset(curl);  // keeps its connections
  const std::string origin = origin_of(url);
  const CurlList headers = headers_for(origin);
  const std::string range = fmt::format("{}-", offset);
  std::array<char, CURL_ERROR_SIZE> message{};
  curl_easy_setopt(curl, CURLOPT_CURLU, url);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, settings.user_agent.c_str());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message.data());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT,
                   std::min<long>(kConnectTimeoutS, settings.stall_timeout_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings.stall_timeout_s));
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kBufferBytes);
  if (offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  if (!settings.ca_file.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, settings.ca_file.c_str());
  }
  Transfer transfer(curl, sink, stop);
  transfer.attach();
  const CURLcode code = curl_easy_perform(curl);
  transfer.finish(code);

  HttpResult result;
  result.head = transfer.head();
  result.head.origin = shown_origin(origin);
  result.head.from_hub = origin == token_origin;
  curl_off_t wait = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait);
  result.head.retry_after_s = std::max<curl_off_t>(wait, 0);
  result.end = end_of(code, transfer.refused(), stop);
  // A refusal whose body was cut is a refusal all the same.
  if (result.end == HttpResult::End::kCut && result.head.status >= 300) {
    result.end = HttpResult::End::kAnswered;
  }
  if (result.end != HttpResult::End::kAnswered) {
    result.problem = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
  }
  location = transfer.location();
  return result;
}

HubClient::HubClient(HubSettings settings) : state_(std::make_unique<State>()) {
  if (state_->handle == nullptr) throw Error("libcurl cannot be set up.");
  state_->token_origin = origin_of(settings.endpoint);
  state_->settings = std::move(settings);
}

HubClient::~HubClient() = default;

HttpResult HubClient::get(const std::string& url, int64_t offset, HttpSink& sink,
                          const std::stop_token& stop) {
  const CurlUrl at(curl_url());
  const auto failed = [](std::string problem) {
    return HttpResult{HttpResult::End::kFailed, {}, std::move(problem)};
  };
  if (curl_url_set(at.get(), CURLUPART_URL, url.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK) {
    return failed("the address cannot be read");
  }
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    std::string location;
    HttpResult result = state_->get_once(at.get(), offset, sink, stop, location);
    if (result.end != HttpResult::End::kAnswered || !is_redirect(result.head.status)) return result;
    const std::string scheme = url_part(at.get(), CURLUPART_SCHEME);
    if (location.empty() ||
        curl_url_set(at.get(), CURLUPART_URL, location.c_str(), CURLU_DISALLOW_USER) != CURLUE_OK) {
      return failed(
          fmt::format("{} redirects to an address that cannot be read", result.head.origin));
    }
    const std::string next = url_part(at.get(), CURLUPART_SCHEME);
    if (next != "https" && (next != "http" || scheme != "http")) {
      return failed(fmt::format("{} redirects to {}, which is refused", result.head.origin,
                                shown_origin(origin_of(at.get()))));
    }
  }
  return failed(fmt::format("there are more than {} redirects", kMaxRedirects));
}

std::string url_encode(std::string_view text, bool keep_slashes) {
  std::string encoded;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      encoded += c;
    } else {
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

}  // namespace quire
