#include "http/tls_context.h"

#include <openssl/ssl.h>

#include "quire/error.h"

namespace quire::http {
namespace {

namespace ssl = boost::asio::ssl;

void require(const boost::system::error_code& error, const std::string& what) {
  if (error) throw Error(what + ": " + error.message() + ".");
}

}  // namespace

ssl::context make_tls_context(const std::string& certificate_file, const std::string& key_file) {
  ssl::context context(ssl::context::tls_server);
  // Fewer than TLS 1.2 no client needs; renegotiation would let clients make the server work.
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context.native_handle(), SSL_MODE_RELEASE_BUFFERS);
  // An encrypted key is refused; nobody is there to be asked for its password.
  context.set_password_callback([](std::size_t, ssl::context::password_purpose) { return ""; });
  boost::system::error_code error;
  context.use_certificate_chain_file(certificate_file, error);
  require(error, "cannot read the TLS certificate '" + certificate_file +
                     "', expected a PEM file with the certificate and its chain");
  context.use_private_key_file(key_file, ssl::context::pem, error);
  require(error, "cannot use the TLS key '" + key_file +
                     "', expected the PEM file of the private key of '" + certificate_file + "'");
  if (SSL_CTX_check_private_key(context.native_handle()) != 1) {
    throw Error("the TLS key '" + key_file + "' does not belong to the certificate '" +
                certificate_file + "'.");
  }
  return context;
}

}  // namespace quire::http
