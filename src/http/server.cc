#include "http/server.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/ssl/context.hpp>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "http/connection.h"
#include "http/io_loop.h"
#include "http/listener.h"
#include "http/server_context.h"
#include "http/stream_connection.h"
#include "http/tls_context.h"
#include "quire/error.h"

namespace quire::http {
namespace {

// Rejected connections that may linger to read their 503; more are closed without a word.
constexpr int64_t kMaxRejecting = 256;

// How late deadlines may be: an eighth of the shortest, within bounds that keep both the
// idle server and the tests quick.
Clock::duration tick_of(const Limits& limits) {
  const auto shortest = std::min(
      {limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.write_timeout});
  return std::clamp(shortest / 8, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
}

using TlsContext = boost::asio::ssl::context;

// Null where the server has no TLS.
std::shared_ptr<TlsContext> tls_of(const Config& config) {
  if (config.tls_certificate_file.empty() && config.tls_key_file.empty()) return nullptr;
  if (config.tls_certificate_file.empty() || config.tls_key_file.empty()) {
    throw Error("TLS needs both a certificate file and a key file, and only one was given.");
  }
  return std::make_shared<TlsContext>(
      make_tls_context(config.tls_certificate_file, config.tls_key_file));
}

}  // namespace

class Server::Impl {
 public:
  Impl(Config config, Handler handler);
  ~Impl();

  void start();
  void stop_accepting();
  void reload_tls();
  void close();
  uint16_t port() const { return port_; }
  ServerContext& context() { return *context_; }
  IoLoop& first_loop() { return *loops_.front(); }

 private:
  void close_listeners();
  std::shared_ptr<TlsContext> tls();
  std::shared_ptr<IoLoop> next_loop();
  void accepted(std::shared_ptr<IoLoop> loop, Socket socket, std::string remote);
  void adopt(const std::shared_ptr<IoLoop>& loop, Socket socket, std::string remote);
  void each_connection(const std::function<void(Connection&)>& visit);

  const std::shared_ptr<ServerContext> context_;
  std::vector<std::shared_ptr<IoLoop>> loops_;
  std::vector<std::shared_ptr<Listener>> listeners_;  // on the first loop
  uint16_t port_ = 0;
  std::size_t next_loop_ = 0;
  std::mutex mutex_;  // of what follows
  std::shared_ptr<TlsContext> tls_;
  std::vector<std::thread> threads_;
};

Server::Impl::Impl(Config config, Handler handler)
    : context_(std::make_shared<ServerContext>(std::move(config), std::move(handler))),
      tls_(tls_of(context_->config)) {
  check(context_->config.threads >= 1, "an HTTP server needs an I/O thread");
  for (int i = 0; i < context_->config.threads; ++i) {
    loops_.push_back(std::make_shared<IoLoop>(tick_of(context_->config.limits)));
  }
  listeners_ = listen_on(first_loop().context(), context_->config.host, context_->config.port);
  port_ = listeners_.front()->port();
}

// Each loop ends once its connections have: nothing is left in them that could outlive the server.
Server::Impl::~Impl() {
  for (const auto& loop : loops_) {
    check(!loop->in_this_thread(), "an HTTP server is destroyed on its own thread");
  }
  close();
  for (const auto& loop : loops_) loop->finish();
  if (threads_.empty()) {
    for (const auto& loop : loops_) loop->run();
  }
  for (auto& thread : threads_) thread.join();
}

void Server::Impl::start() {
  const std::lock_guard lock(mutex_);
  check(threads_.empty(), "an HTTP server is started twice");
  first_loop().on_exception([this] {
    for (const auto& listener : listeners_) listener->go_on();
  });
  first_loop().post([this] {
    if (context_->stopping.load()) return;
    for (const auto& listener : listeners_) {
      listener->tell([this] { return next_loop(); },
                     [this](std::shared_ptr<IoLoop> loop, Socket socket, std::string remote) {
                       accepted(std::move(loop), std::move(socket), std::move(remote));
                     });
    }
    for (const auto& listener : listeners_) listener->go_on();
  });
  for (const auto& loop : loops_) {
    threads_.emplace_back([loop] { loop->run(); });
  }
}

std::shared_ptr<IoLoop> Server::Impl::next_loop() {
  return loops_[next_loop_++ % loops_.size()];
}

void Server::Impl::accepted(std::shared_ptr<IoLoop> loop, Socket socket, std::string remote) {
  if (loop->in_this_thread()) return adopt(loop, std::move(socket), std::move(remote));
  const auto shared = std::make_shared<Socket>(std::move(socket));  // std::function is copyable
  IoLoop& target = *loop;
  target.post([this, loop = loop.get(), shared, remote = std::move(remote)] {
    adopt(loop->shared_from_this(), std::move(*shared), remote);
  });
}

void Server::Impl::adopt(const std::shared_ptr<IoLoop>& loop, Socket socket, std::string remote) {
  boost::system::error_code ignored;  // a socket that is gone already fails its first read
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const std::shared_ptr<TlsContext> tls = this->tls();
  const int64_t max_connections = context_->config.limits.max_connections;
  const int64_t open = context_->open_connections.load();
  if (open < max_connections) {
    ++context_->accepted_connections;
    const auto connection = tls ? make_tls_connection(loop, context_, std::move(socket), *tls)
                                : make_plain_connection(loop, context_, std::move(socket));
    return connection->start(std::move(remote), tls != nullptr);
  }
  ++context_->rejected_connections;
  // A handshake only to say no would cost more than the answer is worth.
  if (tls || open >= max_connections + kMaxRejecting) return;
  make_plain_connection(loop, context_, std::move(socket))->start_rejecting();
}

void Server::Impl::each_connection(const std::function<void(Connection&)>& visit) {
  for (const auto& loop : loops_) {
    loop->post([loop = loop.get(), visit] { loop->for_each(visit); });
  }
}

void Server::Impl::close_listeners() {
  first_loop().post([listeners = listeners_] {
    for (const auto& listener : listeners) listener->close();
  });
}

void Server::Impl::stop_accepting() {
  context_->stopping.store(true);
  close_listeners();
  each_connection([](Connection& connection) { connection.end_if_idle(); });
}

void Server::Impl::reload_tls() {
  std::shared_ptr<TlsContext> fresh = tls_of(context_->config);
  const std::lock_guard lock(mutex_);
  tls_ = std::move(fresh);
}

std::shared_ptr<TlsContext> Server::Impl::tls() {
  const std::lock_guard lock(mutex_);
  return tls_;
}

void Server::Impl::close() {
  context_->stopping.store(true);
  context_->closing.store(true);
  close_listeners();
  each_connection([](Connection& connection) { connection.cut(); });
}

Server::Server(Config config, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(config), std::move(handler))) {}
Server::~Server() = default;

void Server::start() {
  impl_->start();
}
uint16_t Server::port() const {
  return impl_->port();
}
void Server::stop_accepting() {
  impl_->stop_accepting();
}
int64_t Server::num_active() const {
  return impl_->context().num_active.load();
}
void Server::reload_tls() {
  impl_->reload_tls();
}
void Server::close() {
  impl_->close();
}
void Server::post(std::function<void()> task) {
  impl_->first_loop().post(std::move(task));
}

Stats Server::stats() const {
  const ServerContext& context = impl_->context();
  return {.open_connections = context.open_connections.load(),
          .accepted_connections = context.accepted_connections.load(),
          .rejected_connections = context.rejected_connections.load(),
          .malformed_requests = context.malformed_requests.load(),
          .timed_out_connections = context.timed_out_connections.load(),
          .dropped_slow_readers = context.dropped_slow_readers.load()};
}

}  // namespace quire::http
