#pragma once
// Which pages of other origins may call the API from a browser (cross-origin resource sharing).
//
// Thread safety: immutable once made.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/exchange.h"

namespace quire::server {

class Cors {
 public:
  // `allowed_origins`: "*" allows any origin; none: no page of another origin.
  explicit Cors(std::vector<std::string> allowed_origins)
      : allowed_origins_(std::move(allowed_origins)) {}

  // Whether pages of `origin` may call the API.
  bool allows(std::string_view origin) const { return allows_any() || is_listed(origin); }
  // Adds the headers that let a page of the request's origin read the answer; none where it may
  // not.
  void add_headers(const http::Request& request, http::Headers& headers) const;
  // The answer to a browser's preflight request; nothing where the request is none, or its origin
  // is not allowed.
  std::optional<http::Response> preflight(const http::Request& request) const;

 private:
  bool allows_any() const { return is_listed("*"); }
  bool is_listed(std::string_view origin) const;

  std::vector<std::string> allowed_origins_;
};

}  // namespace quire::server
