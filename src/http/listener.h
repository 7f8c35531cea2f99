#pragma once
// A listening socket: accepts connections while it is open, even if some fail. Where the process
// has no file descriptors or memory left it pauses, then goes on. Where it has no memory to wait
// for the next connection, the exception leaves its handler, and go_on() begins anew.
//
// Thread safety: only its loop's thread, except for the constructor and port().
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "http/stream_connection.h"

namespace quire::http {

class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  // Where the next connection shall live.
  using PickLoop = std::function<std::shared_ptr<IoLoop>()>;
  // On the listener's thread.
  using Accepted = std::function<void(std::shared_ptr<IoLoop>, Socket, std::string remote)>;

  // Binds and listens. Throws boost::system::system_error. `only_v6`: leaves IPv4 to another one.
  Listener(boost::asio::io_context& context, const Endpoint& endpoint, bool only_v6);

  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  // What to do with connections: once, before go_on().
  void tell(PickLoop pick_loop, Accepted accepted);
  // Waits for connections, unless it does, or was not told, or was closed. May throw.
  void go_on();
  void close();

 private:
  class Wait;
  void accept();
  void pause();

  boost::asio::basic_socket_acceptor<boost::asio::ip::tcp, boost::asio::io_context::executor_type>
      acceptor_;
  boost::asio::steady_timer pause_;
  PickLoop pick_loop_;
  Accepted accepted_;
  bool waits_ = false;  // for a connection, or for the end of a pause
};

// Listens on every address that `host` stands for, all on one port. Throws Error.
std::vector<std::shared_ptr<Listener>> listen_on(boost::asio::io_context& context,
                                                 const std::string& host, uint16_t port);

}  // namespace quire::http
