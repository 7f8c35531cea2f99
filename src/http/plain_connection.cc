#include "http/stream_connection.h"

namespace quire::http {
namespace {

class PlainConnection final : public StreamConnection<Socket> {
 public:
  using StreamConnection::StreamConnection;

 private:
  void async_handshake() override { on_handshake(true); }  // there is none: never called

  void async_end_output() override {
    boost::system::error_code ignored;  // reset already: the read under way ends
    stream().shutdown(Socket::shutdown_send, ignored);
  }
};

}  // namespace

std::shared_ptr<Connection> make_plain_connection(std::shared_ptr<IoLoop> loop,
                                                  std::shared_ptr<ServerContext> server,
                                                  Socket socket) {
  return std::make_shared<PlainConnection>(std::move(loop), std::move(server), std::move(socket));
}

}  // namespace quire::http
