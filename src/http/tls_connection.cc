#include <boost/asio/buffer.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "http/stream_connection.h"

namespace quire::http {
namespace {

using TlsStream = boost::asio::ssl::stream<Socket>;

class TlsConnection final : public StreamConnection<TlsStream> {
 public:
  using StreamConnection::StreamConnection;

 private:
  std::shared_ptr<TlsConnection> self() {
    return std::static_pointer_cast<TlsConnection>(shared_from_this());
  }

  // A TLS record begins with its type (RFC 8446, 5.1: 20 to 24), an HTTP request with a method's
  // letter.
  void async_handshake() override {
    stream().next_layer().async_wait(
        Socket::wait_read, [self = self()](const boost::system::error_code& error) {
          if (error) return self->on_handshake(false);
          self->plain_ = self->sends_letters();
          if (self->plain_) return self->on_plain_request();
          self->stream().async_handshake(
              TlsStream::server,
              [self](const boost::system::error_code& failed) { self->on_handshake(!failed); });
        });
  }

  bool sends_letters() {
    Socket& socket = stream().next_layer();
    boost::system::error_code error;
    socket.non_blocking(true, error);  // should there be nothing to read after all
    char first = 0;
    const std::size_t size =
        socket.receive(boost::asio::buffer(&first, 1), Socket::message_peek, error);
    const char lower = static_cast<char>(first | 0x20);
    return !error && size == 1 && lower >= 'a' && lower <= 'z';
  }

  void async_read(char* data, std::size_t size) override {
    if (!plain_) return StreamConnection::async_read(data, size);
    read_from(stream().next_layer(), data, size);
  }

  void async_write(std::string_view bytes) override {
    if (!plain_) return StreamConnection::async_write(bytes);
    write_to(stream().next_layer(), bytes);
  }

  // Sends close_notify and waits for the client's.
  void async_end_output() override {
    if (plain_) {
      boost::system::error_code ignored;  // reset already: the read under way ends
      stream().next_layer().shutdown(Socket::shutdown_send, ignored);
      return;
    }
    stream().async_shutdown(
        [self = self()](const boost::system::error_code&) { self->on_end_output(); });
  }

  bool plain_ = false;  // the client sent plain HTTP, and is told so in plain HTTP
};

}  // namespace

std::shared_ptr<Connection> make_tls_connection(std::shared_ptr<IoLoop> loop,
                                                std::shared_ptr<ServerContext> server,
                                                Socket socket, boost::asio::ssl::context& tls) {
  return std::make_shared<TlsConnection>(std::move(loop), std::move(server), std::move(socket),
                                         tls);
}

}  // namespace quire::http
