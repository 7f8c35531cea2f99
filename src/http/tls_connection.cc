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

  void async_handshake() override {
    stream().async_handshake(
        TlsStream::server,
        [self = self()](const boost::system::error_code& error) { self->on_handshake(!error); });
  }

  // Sends close_notify and waits for the client's.
  void async_end_output() override {
    stream().async_shutdown(
        [self = self()](const boost::system::error_code&) { self->on_end_output(); });
  }
};

}  // namespace

std::shared_ptr<Connection> make_tls_connection(std::shared_ptr<IoLoop> loop,
                                                std::shared_ptr<ServerContext> server,
                                                Socket socket, boost::asio::ssl::context& tls) {
  return std::make_shared<TlsConnection>(std::move(loop), std::move(server), std::move(socket),
                                         tls);
}

}  // namespace quire::http
