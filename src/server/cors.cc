#include "server/cors.h"

#include <algorithm>

namespace quire::server {

std::optional<http::Response> Cors::preflight(const http::Request& request) const {
  if (request.method != "OPTIONS" || !request.header("Access-Control-Request-Method")) return {};
  http::Response response;
  response.status = 204;
  add_headers(request, response.headers);
  if (response.headers.empty()) return {};
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
  // Any headers that it asks for: clients add headers of their own, and no header has a meaning
  // here that a page of an allowed origin may not use.
  response.headers.emplace_back(
      "Access-Control-Allow-Headers",
      request.header("Access-Control-Request-Headers").value_or("Authorization, Content-Type"));
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

void Cors::add_headers(const http::Request& request, http::Headers& headers) const {
  const auto origin = request.header("Origin");
  if (!origin || !allows(*origin)) return;
  const bool any = allows_any();
  headers.emplace_back("Access-Control-Allow-Origin", any ? "*" : std::string(*origin));
  headers.emplace_back("Access-Control-Expose-Headers",
                       "X-Request-Id, Retry-After, x-ratelimit-limit-requests, "
                       "x-ratelimit-limit-tokens, x-ratelimit-remaining-requests, "
                       "x-ratelimit-remaining-tokens, x-ratelimit-reset-requests, "
                       "x-ratelimit-reset-tokens");
  if (!any) headers.emplace_back("Vary", "Origin");
}

bool Cors::is_listed(std::string_view origin) const {
  return std::ranges::count(allowed_origins_, origin) > 0;
}

}  // namespace quire::server
