#include "loadgen/http_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/check.h"
#include "quire/error.h"

namespace quire::loadgen {
namespace {

constexpr double kMaxTimeout = 24 * 86400;  // libcurl takes no more on systems with a 32-bit long
constexpr size_t kMaxFetchedBytes = size_t{4} << 20;

// A part of a URL, empty if it has none.
std::string url_part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

std::string host_of(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return {};
  return url_part(parsed.get(), CURLUPART_HOST);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

size_t append_body(char* bytes, size_t size, size_t count, void* target) {
  auto& body = *static_cast<std::string*>(target);
  if (body.size() + size * count > kMaxFetchedBytes) return 0;
  body.append(bytes, size * count);
  return size * count;
}

}  // namespace

std::string checked_base_url(const std::string& url) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl_url(), curl_url_cleanup);
  const bool valid = curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  const std::string scheme = url_part(parsed.get(), CURLUPART_SCHEME);
  if (!valid || (scheme != "http" && scheme != "https") ||
      !url_part(parsed.get(), CURLUPART_QUERY).empty() ||
      !url_part(parsed.get(), CURLUPART_FRAGMENT).empty()) {
    throw Error(fmt::format(
        "'{}' is no base URL of a server; expected one like http://127.0.0.1:8000", url));
  }
  // OpenAI's clients are given the URL with /v1; the paths asked for have it anyway.
  std::string base = url.substr(0, url.find_last_not_of('/') + 1);
  constexpr std::string_view kVersion = "/v1";
  if (base.ends_with(kVersion)) base.resize(base.size() - kVersion.size());
  return base;
}

curl_slist* make_headers(const HttpOptions& options) {
  curl_slist* headers = nullptr;
  const auto add = [&headers](const std::string& line) {
    curl_slist* longer = curl_slist_append(headers, line.c_str());
    check(longer != nullptr, "libcurl has memory for a header");
    headers = longer;
  };
  add("Content-Type: application/json");
  add("Expect:");  // libcurl would wait for "100 Continue" before long bodies
  if (!options.api_key.empty()) add("Authorization: Bearer " + options.api_key);
  return headers;
}

void configure(CURL* easy, const HttpOptions& options, const curl_slist* headers,
               const std::string& url) {
  curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "quire-bench-serve");
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  if (options.timeout_s < kMaxTimeout) {  // libcurl takes 0 for none
    const long milliseconds = std::max(1L, std::lround(options.timeout_s * 1e3));
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, milliseconds);
  }
  // A proxy of the environment is not meant for this machine itself.
  if (is_loopback(host_of(options.base_url))) curl_easy_setopt(easy, CURLOPT_PROXY, "");
  if (options.insecure) {
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
  }
}

std::string transfer_error(CURLcode code, const HttpOptions& options) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
      return fmt::format("cannot connect to {}: is the server running there?", options.base_url);
    case CURLE_OPERATION_TIMEDOUT:
      return fmt::format("no end after {} s, which --timeout sets", options.timeout_s);
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
      return fmt::format("the server closed the connection early ({})", curl_easy_strerror(code));
    case CURLE_PEER_FAILED_VERIFICATION:
      return "the server's certificate cannot be verified; --insecure takes any";
    default:
      return fmt::format("the transfer failed: {}", curl_easy_strerror(code));
  }
}

HttpResponse fetch(const HttpOptions& options, const std::string& path, std::string_view body) {
  const std::unique_ptr<CURL, void (*)(CURL*)> easy(curl_easy_init(), curl_easy_cleanup);
  check(easy != nullptr, "libcurl has memory for a handle");
  const std::unique_ptr<curl_slist, void (*)(curl_slist*)> headers(make_headers(options),
                                                                   curl_slist_free_all);
  HttpResponse response;
  const std::string url = options.base_url + path;
  configure(easy.get(), options, headers.get(), url);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, append_body);
  curl_easy_setopt(easy.get(), CURLOPT_WRITEDATA, &response.body);
  if (!body.empty()) {
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(easy.get(), CURLOPT_POSTFIELDS, body.data());
  }
  const CURLcode code = curl_easy_perform(easy.get());
  if (code == CURLE_WRITE_ERROR) {
    throw Error(fmt::format("{} answers with more than {} MiB", url, kMaxFetchedBytes >> 20));
  }
  if (code != CURLE_OK) throw Error(fmt::format("{}: {}", url, transfer_error(code, options)));
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  response.status = static_cast<int>(status);
  return response;
}

}  // namespace quire::loadgen
