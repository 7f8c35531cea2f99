#include "server/doors.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/lower_case.h"
#include "server/api/api_error.h"

namespace quire::server {
namespace {

constexpr std::string_view kJsonType = "application/json";

// The name or address in a Host header: without its port, brackets, and the dot at its end.
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower_case(host);
}

// The type of a Content-Type header without its parameters.
std::string media_type(std::string_view header) {
  header = header.substr(0, header.find(';'));
  while (header.ends_with(' ') || header.ends_with('\t')) header.remove_suffix(1);
  return lower_case(header);
}

ApiError forbidden(const std::string& message, const char* code) {
  return ApiError(403, "invalid_request_error", message, {}, code);
}

ApiError unsupported_media_type(const std::string& message) {
  return ApiError(415, "invalid_request_error", message, {}, "unsupported_media_type");
}

// A header as a part of a message: short.
std::string_view shortened(std::string_view header) {
  return header.substr(0, 200);
}

ApiError unknown_host(const std::string& where) {
  return forbidden(
      fmt::format("This server is not reached under the name in {}; expected localhost, an address "
                  "of this machine's loopback, or a name given to --allowed-hosts.",
                  where),
      "host_not_allowed");
}

}  // namespace

bool is_loopback(std::string_view host) {
  const std::string name = lower_case(host);
  if (name == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, name.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, name.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6);
}

// Its port is ignored: a tunnel changes it, and DNS rebinding needs a name.
bool Doors::knows_host(std::string_view host) const {
  const std::string name = host_name(host);
  return is_loopback(name) || std::ranges::any_of(config_.allowed_hosts, [&](const auto& allowed) {
           return host_name(allowed) == name;
         });
}

void Doors::check_host(const http::Request& request) const {
  if (!config_.trusts_its_machine && config_.allowed_hosts.empty()) return;
  const auto host = request.header("Host");
  const bool is_absolute = !request.authority.empty();
  if (is_absolute && !knows_host(request.authority)) {
    throw unknown_host(fmt::format("the target \"http://{}\"", shortened(request.authority)));
  }
  if (host && !knows_host(*host)) {
    throw unknown_host(fmt::format("\"Host: {}\"", shortened(*host)));
  }
}

void Doors::check_computing(const http::Request& request) const {
  if (config_.trusts_its_machine) {
    const auto origin = request.header("Origin");
    const std::string host = lower_case(request.header("Host").value_or(""));
    const bool own = !origin || lower_case(*origin) == "http://" + host ||
                     lower_case(*origin) == "https://" + host;
    if (!own && !cors_.allows(*origin)) {
      throw forbidden(
          fmt::format("Web pages of the origin \"{}\" may not use this server; --allowed-origins "
                      "lets them, and API keys (--api-key-file) let those that know one.",
                      shortened(*origin)),
          "origin_not_allowed");
    }
  }
  const std::string encoding = lower_case(request.header("Content-Encoding").value_or("identity"));
  if (encoding != "identity" && !encoding.empty()) {
    throw unsupported_media_type(
        fmt::format("The body has the Content-Encoding \"{}\"; expected a body that is not "
                    "compressed.",
                    shortened(encoding)));
  }
  const auto type = request.header("Content-Type");
  if (!config_.trusts_its_machine || media_type(type.value_or("")) == kJsonType) return;
  throw unsupported_media_type(
      type ? fmt::format("The body has the Content-Type \"{}\"; expected the header "
                         "\"Content-Type: application/json\", which a server without API keys asks "
                         "for.",
                         shortened(*type))
           : "The body has no Content-Type; expected the header \"Content-Type: "
             "application/json\", which a server without API keys asks for.");
}

}  // namespace quire::server
