#pragma once
// A server's certificate and key, ready for connections.
//
// Thread safety: a free function; what it returns is used by all connections at once.
#include <boost/asio/ssl/context.hpp>
#include <string>

namespace quire::http {

// TLS 1.2 and up. Throws Error: a file that cannot be read or holds something else, a key that does
// not belong to the certificate.
boost::asio::ssl::context make_tls_context(const std::string& certificate_file,
                                           const std::string& key_file);

}  // namespace quire::http
