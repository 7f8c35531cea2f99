#pragma once
// Checks requests, from browsers and others, before the server looks at who asks and for what.
//
// A server without API keys on loopback trusts all programs of its machine. Web pages that a
// browser there shows must not inherit that trust: they could reach the server under a name of
// their own (DNS rebinding), or send it a POST that needs no preflight. So its Host must be a name
// of the machine itself, its Origin must be its own, and bodies must be declared as JSON, which a
// page of another origin cannot do without a preflight.
//
// Thread safety: immutable once made.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/message.h"
#include "server/cors.h"

namespace quire::server {

struct DoorConfig {
  // Whether `Origin` and `Content-Type` of requests that compute are checked: a server without keys
  // on loopback.
  bool trusts_its_machine = false;
  // Names in addition to localhost and addresses of loopback. Where there are any, `Host` is
  // checked even on a server that does not trust its machine.
  std::vector<std::string> allowed_hosts{};
};

// Whether a server at `host`, as given to --host, can be reached only from its own machine.
bool is_loopback(std::string_view host);

class Doors {
 public:
  // `cors` says which other origins are let in; it must outlive this.
  Doors(DoorConfig config, const Cors& cors) : config_(std::move(config)), cors_(cors) {}

  // Throws ApiError 403 where `Host`, or an absolute target, names another server.
  void check_host(const http::Request& request) const;
  // Checks a request that computes. Throws ApiError: 403 for a foreign `Origin`, 415 for a body
  // that is encoded or is not declared as JSON.
  void check_computing(const http::Request& request) const;

 private:
  bool knows_host(std::string_view host) const;

  DoorConfig config_;
  const Cors& cors_;
};

}  // namespace quire::server
