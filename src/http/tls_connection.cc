#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
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

  void async_handshake() override {
    stream().async_handshake(TlsStream::server,
                             [self = self()](const boost::system::error_code& error) {
                               if (!is_plain_http(error)) return self->on_handshake(!error);
                               self->plain_ = true;
                               self->on_plain_request();
                             });
  }

  // What OpenSSL says where the first bytes are "GET " or another method's.
  static bool is_plain_http(const boost::system::error_code& error) {
    return error.category() == boost::asio::error::get_ssl_category() &&
           ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
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
