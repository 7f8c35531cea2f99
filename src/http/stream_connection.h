#pragma once
// A Connection over one of Asio's streams. Instantiated in plain_connection.cc and
// tls_connection.cc; everything else makes connections through the functions below.
//
// Thread safety: as Connection.
#include <poll.h>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "http/connection.h"

namespace boost::asio::ssl {
class context;
}

namespace quire::http {

// With its executor's type known, Asio needs neither virtual calls nor allocations to use it.
using Socket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;

std::shared_ptr<Connection> make_plain_connection(std::shared_ptr<IoLoop> loop,
                                                  std::shared_ptr<ServerContext> server,
                                                  Socket socket);
// `tls` need not outlive the connection, which goes on with its certificate.
std::shared_ptr<Connection> make_tls_connection(std::shared_ptr<IoLoop> loop,
                                                std::shared_ptr<ServerContext> server,
                                                Socket socket, boost::asio::ssl::context& tls);

// Derived has stream(), socket(), async_handshake() and async_end_output().
template <class Stream>
class StreamConnection : public Connection {
 public:
  template <class... Args>
  StreamConnection(std::shared_ptr<IoLoop> loop, std::shared_ptr<ServerContext> server,
                   Args&&... args)
      : Connection(std::move(loop), std::move(server)), stream_(std::forward<Args>(args)...) {}

 protected:
  Stream& stream() { return stream_; }

  void async_read(char* data, std::size_t size) override { read_from(stream_, data, size); }
  void async_write(std::string_view bytes) override { write_to(stream_, bytes); }

  template <class AnyStream>
  void read_from(AnyStream& from, char* data, std::size_t size) {
    from.async_read_some(
        boost::asio::buffer(data, size),
        [self = self()](const ErrorCode& error, std::size_t read) { self->on_read(!error, read); });
  }

  template <class AnyStream>
  void write_to(AnyStream& to, std::string_view bytes) {
    to.async_write_some(boost::asio::buffer(bytes.data(), bytes.size()),
                        [self = self()](const ErrorCode& error, std::size_t written) {
                          self->on_write(!error, written);
                        });
  }

 private:
  using ErrorCode = boost::system::error_code;

  std::shared_ptr<StreamConnection> self() {
    return std::static_pointer_cast<StreamConnection>(shared_from_this());
  }

  bool peer_closed() override {
    pollfd socket = {
        .fd = stream_.lowest_layer().native_handle(), .events = POLLRDHUP, .revents = 0};
    return poll(&socket, 1, 0) > 0;
  }

  void close_socket() override {
    ErrorCode ignored;  // closed either way
    stream_.lowest_layer().close(ignored);
  }

  Stream stream_;
};

}  // namespace quire::http
