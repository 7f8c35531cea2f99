#include "server/observe/http_post.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/curl_handles.h"
#include "quire/error.h"

namespace quire::server {
namespace {

constexpr size_t kMaxDiscarded = 1 << 20;  // of an answer

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return "";
  return std::unique_ptr<char, FreeCurl>(text).get();
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

size_t discard(char* /*bytes*/, size_t size, size_t count, void* discarded) {
  size_t& total = *static_cast<size_t*>(discarded);
  total += size * count;
  return total <= kMaxDiscarded ? size * count : 0;
}

int asks_to_give_up(void* give_up, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<const std::function<bool()>*>(give_up))() ? 1 : 0;
}

}  // namespace

struct HttpPost::State {
  CurlLibrary library;
  std::string url;
  bool without_proxy = false;
  CurlHandle handle{curl_easy_init()};
  CurlList headers{};
};

HttpPost::HttpPost(std::string url) : state_(std::make_unique<State>()) {
  const CurlUrl parsed(curl_url());
  curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0);
  state_->without_proxy = is_this_machine(part_of(parsed.get(), CURLUPART_HOST));
  state_->url = std::move(url);
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  state_->headers.reset(headers);
  // libcurl would wait for "100 Continue" before long bodies.
  if (headers == nullptr || curl_slist_append(headers, "Expect:") == nullptr ||
      state_->handle == nullptr) {
    throw Error("libcurl cannot be set up.");
  }
}

HttpPost::~HttpPost() = default;

HttpPostResult HttpPost::send(std::string_view body, std::chrono::milliseconds at_most,
                              const std::function<bool()>& give_up) {
  CURL* curl = state_->handle.get();
  curl_easy_reset(curl);  // keeps its connection
  std::array<char, CURL_ERROR_SIZE> message{};
  size_t discarded = 0;
  curl_easy_setopt(curl, CURLOPT_URL, state_->url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, state_->headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "quire");
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message.data());
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(at_most.count()));
  curl_easy_setopt(curl, CURLOPT_POST, 1L);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, discard);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &discarded);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, asks_to_give_up);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &give_up);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  if (state_->without_proxy) curl_easy_setopt(curl, CURLOPT_PROXY, "");
  const CURLcode code = curl_easy_perform(curl);
  HttpPostResult result;
  if (code == CURLE_OK) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    result.status = static_cast<int>(status);
  } else {
    result.problem = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
  }
  return result;
}

std::string otlp_traces_url(const std::string& url) {
  const CurlUrl parsed(curl_url());
  const bool valid =
      curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), CURLU_DISALLOW_USER) == CURLUE_OK;
  const std::string scheme = part_of(parsed.get(), CURLUPART_SCHEME);
  if (!valid || (scheme != "http" && scheme != "https") ||
      !part_of(parsed.get(), CURLUPART_FRAGMENT).empty()) {
    throw Error(fmt::format(
        "'{}' is no address of a collector; expected one like http://127.0.0.1:4318/v1/traces",
        url));
  }
  const std::string path = part_of(parsed.get(), CURLUPART_PATH);
  if (path.empty() || path == "/") curl_url_set(parsed.get(), CURLUPART_PATH, "/v1/traces", 0);
  return part_of(parsed.get(), CURLUPART_URL);
}

}  // namespace quire::server
