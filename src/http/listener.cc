#include "http/listener.h"

#include <algorithm>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <utility>

#include "http/io_loop.h"
#include "quire/error.h"

namespace quire::http {
namespace {

using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// How many connections may wait while all threads are busy; the system may grant fewer.
constexpr int kBacklog = 4096;
// Descriptors and memory come back when connections end: soon enough to try again.
constexpr std::chrono::milliseconds kPause{50};

std::vector<tcp::endpoint> resolve(boost::asio::io_context& context, const std::string& host,
                                   uint16_t port) {
  ErrorCode error;
  tcp::resolver resolver(context);
  const auto results = resolver.resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || host.empty()) {
    throw Error("cannot listen on host '" + host + "': " + (error ? error.message() : "no name") +
                "; expected an address or a name of this machine.");
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& result : results) {
    if (std::find(endpoints.begin(), endpoints.end(), result.endpoint()) == endpoints.end()) {
      endpoints.push_back(result.endpoint());
    }
  }
  return endpoints;
}

// Names such as localhost stand for IPv6 addresses even where the machine has no IPv6.
bool family_missing(const ErrorCode& error) {
  return error == boost::asio::error::address_family_not_supported ||
         error == boost::system::errc::address_not_available;
}

}  // namespace

Listener::Listener(boost::asio::io_context& context, const Endpoint& endpoint, bool only_v6)
    : acceptor_(context), pause_(context) {
  acceptor_.open(endpoint.protocol());
  acceptor_.set_option(boost::asio::socket_base::reuse_address(true));
  if (endpoint.address().is_v6()) {
    acceptor_.set_option(boost::asio::ip::v6_only(only_v6));
  }
  acceptor_.bind(endpoint);
  acceptor_.listen(kBacklog);
}

// Held by the handler of what the listener waits for. Asio drops handlers uncalled where it has no
// memory, before or after the wait.
class Listener::Wait {
 public:
  explicit Wait(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {
    listener_->waits_ = true;
  }
  ~Wait() {
    if (listener_) listener_->waits_ = false;
  }
  Wait(Wait&&) = default;
  Wait& operator=(Wait&&) = delete;

  // It is over.
  std::shared_ptr<Listener> end() {
    listener_->waits_ = false;
    return std::move(listener_);
  }

 private:
  std::shared_ptr<Listener> listener_;
};

void Listener::tell(PickLoop pick_loop, Accepted accepted) {
  pick_loop_ = std::move(pick_loop);
  accepted_ = std::move(accepted);
}

void Listener::go_on() {
  if (accepted_ && acceptor_.is_open() && !waits_) accept();
}

void Listener::close() {
  ErrorCode ignored;  // closed either way
  acceptor_.close(ignored);
  pause_.cancel();
}

void Listener::accept() {
  std::shared_ptr<IoLoop> loop = pick_loop_();
  boost::asio::io_context& context = loop->context();
  acceptor_.async_accept(context, [wait = Wait(shared_from_this()), loop = std::move(loop)](
                                      const ErrorCode& error, Socket socket) mutable {
    const std::shared_ptr<Listener> self = wait.end();
    if (!self->acceptor_.is_open()) return;
    if (error == boost::asio::error::connection_aborted) return self->accept();
    if (error) return self->pause();
    try {
      ErrorCode gone;
      const tcp::endpoint remote = socket.remote_endpoint(gone);
      if (!gone) {
        self->accepted_(std::move(loop), std::move(socket), remote.address().to_string());
      }
    } catch (const std::exception&) {
      return self->pause();  // no memory for one more
    }
    self->accept();
  });
}

void Listener::pause() {
  pause_.expires_after(kPause);
  pause_.async_wait(
      [wait = Wait(shared_from_this())](const ErrorCode&) mutable { wait.end()->go_on(); });
}

std::vector<std::shared_ptr<Listener>> listen_on(boost::asio::io_context& context,
                                                 const std::string& host, uint16_t port) {
  std::vector<std::shared_ptr<Listener>> listeners;
  ErrorCode last_error;
  const std::vector<tcp::endpoint> endpoints = resolve(context, host, port);
  for (tcp::endpoint endpoint : endpoints) {
    if (port == 0 && !listeners.empty()) endpoint.port(listeners.front()->port());
    try {
      listeners.push_back(std::make_shared<Listener>(context, endpoint, endpoints.size() > 1));
    } catch (const boost::system::system_error& error) {
      last_error = error.code();
      if (!family_missing(last_error)) break;
    }
  }
  if (listeners.empty() || (last_error && !family_missing(last_error))) {
    throw Error("cannot listen on " + host + ":" + std::to_string(port) + ": " +
                last_error.message() + ".");
  }
  return listeners;
}

}  // namespace quire::http
