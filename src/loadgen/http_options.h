#pragma once
// How to reach a server, and a single request to one.
#include <curl/curl.h>

#include <limits>
#include <string>
#include <string_view>

namespace quire::loadgen {

struct HttpOptions {
  std::string base_url;   // "http://127.0.0.1:8000", without a slash at its end
  std::string api_key;    // none if empty
  bool insecure = false;  // any TLS certificate will do
  double timeout_s = std::numeric_limits<double>::infinity();  // of a whole request
};

// Throws Error unless `url` is one of http or https with a host and neither query nor fragment;
// returns it without a slash at its end.
std::string checked_base_url(const std::string& url);

// The headers of a request; the caller frees them with curl_slist_free_all().
curl_slist* make_headers(const HttpOptions& options);

// Sets the options that all requests have in common.
void configure(CURL* easy, const HttpOptions& options, const curl_slist* headers,
               const std::string& url);

// What went wrong with a transfer, in a sentence for the user.
std::string transfer_error(CURLcode code, const HttpOptions& options);

struct HttpResponse {
  int status = 0;
  std::string body;
};

// One request, waited for: a GET, or a POST if there is a body. Throws Error if no answer comes, or
// one of more than 4 MiB.
HttpResponse fetch(const HttpOptions& options, const std::string& path, std::string_view body = {});

}  // namespace quire::loadgen
