#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/temporary_folder_test_util.h"
#include "http/server.h"
#include "http/test_client.h"
#include "quire/error.h"

namespace quire::http {
namespace {

using ExchangePtr = std::shared_ptr<Exchange>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// A self-signed certificate for localhost and its key, as PEM files.
void write_certificate(const std::string& certificate_file, const std::string& key_file) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), X509_free);
  ASSERT_TRUE(key && certificate);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  const File certificate_out(std::fopen(certificate_file.c_str(), "w"));
  const File key_out(std::fopen(key_file.c_str(), "w"));
  ASSERT_TRUE(certificate_out && key_out);
  ASSERT_EQ(PEM_write_X509(certificate_out.get(), certificate.get()), 1);
  ASSERT_EQ(PEM_write_PrivateKey(key_out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr),
            1);
}

class TlsClient : public TestClient {
 public:
  explicit TlsClient(uint16_t port)
      : TestClient(port), context_(SSL_CTX_new(TLS_client_method())), ssl_(SSL_new(context_)) {
    SSL_set_fd(ssl_, fd());
    connected_ = SSL_connect(ssl_) == 1;
  }
  ~TlsClient() override {
    SSL_free(ssl_);
    SSL_CTX_free(context_);
  }
  bool connected() const { return connected_; }
  // The server's, as DER.
  std::vector<unsigned char> certificate() const {
    const std::unique_ptr<X509, decltype(&X509_free)> peer(SSL_get1_peer_certificate(ssl_),
                                                           X509_free);
    unsigned char* bytes = nullptr;
    const int size = i2d_X509(peer.get(), &bytes);
    const std::vector<unsigned char> out(bytes, bytes + std::max(size, 0));
    OPENSSL_free(bytes);
    return out;
  }
  void say_goodbye() { SSL_shutdown(ssl_); }
  // The server has said that nothing more comes: the end is no accident.
  bool was_told_the_end() const { return (SSL_get_shutdown(ssl_) & SSL_RECEIVED_SHUTDOWN) != 0; }

 protected:
  long read_some(char* data, std::size_t size) override {
    const int n = SSL_read(ssl_, data, static_cast<int>(size));
    return n > 0 ? n : (SSL_get_error(ssl_, n) == SSL_ERROR_ZERO_RETURN ? 0 : -1);
  }
  long write_some(const char* data, std::size_t size) override {
    return SSL_write(ssl_, data, static_cast<int>(size));
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
  bool connected_ = false;
};

class HttpTls : public testing::Test {
 protected:
  void SetUp() override {
    config_ = test_config();
    config_.tls_certificate_file = directory_ + "/certificate.pem";
    config_.tls_key_file = directory_ + "/key.pem";
    write_certificate(config_.tls_certificate_file, config_.tls_key_file);
  }

  std::string message_of(const Config& config) {
    try {
      Server server(config, [](ExchangePtr) {});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const TemporaryFolder temporary_;
  const std::string directory_ = temporary_.path();
  Config config_;
};

TEST_F(HttpTls, AnswersAndStreams) {
  TestServer server({{"/stream",
                      [](ExchangePtr exchange) {
                        EXPECT_TRUE(exchange->request().tls);
                        exchange->begin_stream({});
                        exchange->write("one ");
                        exchange->write(std::string(100'000, 'x'));
                        exchange->finish();
                      }}},
                    config_);
  TlsClient client(server.port());
  ASSERT_TRUE(client.connected());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.fetch("/echo").body, "GET /echo? ");
    const TestResponse stream = client.fetch("/stream");
    EXPECT_TRUE(stream.whole);
    EXPECT_EQ(stream.body, "one " + std::string(100'000, 'x'));
  }
  ASSERT_TRUE(client.post("/echo", std::string(1 << 20, 'b')));
  EXPECT_EQ(client.response().body, "POST /echo? " + std::string(1 << 20, 'b'));
}

TEST_F(HttpTls, SaysThatAConnectionEnds) {
  TestServer server({}, config_);
  TlsClient client(server.port());
  ASSERT_TRUE(client.send("GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(client.response().status, 200);
  client.read_to_end();
  EXPECT_TRUE(client.was_told_the_end());
  client.say_goodbye();
  EXPECT_TRUE(eventually([&] { return server.stats().open_connections == 0; }));
}

TEST_F(HttpTls, RefusesAndTellsTheEnd) {
  TestServer server({}, config_);
  TlsClient client(server.port());
  ASSERT_TRUE(client.send("nonsense\r\n\r\n"));
  EXPECT_EQ(client.response().status, 400);
  client.read_to_end();
  EXPECT_TRUE(client.was_told_the_end());
}

TEST_F(HttpTls, NoticesClientsThatLeave) {
  std::atomic<int> closed{0};
  TestServer server({{"/wait",
                      [&](ExchangePtr exchange) {
                        exchange->on_closed([&, exchange] { ++closed; });
                        exchange->begin_stream({});
                      }}},
                    config_);
  TlsClient polite(server.port());
  ASSERT_TRUE(polite.get("/wait") && polite.read_past("\r\n\r\n"));
  polite.say_goodbye();
  EXPECT_TRUE(eventually([&] { return closed == 1; }));
  TlsClient silent(server.port());
  ASSERT_TRUE(silent.get("/wait") && silent.read_past("\r\n\r\n"));
  silent.end_output();
  EXPECT_TRUE(eventually([&] { return closed == 2; }));
  TlsClient rude(server.port());
  ASSERT_TRUE(rude.get("/wait") && rude.read_past("\r\n\r\n"));
  rude.reset();
  EXPECT_TRUE(eventually([&] { return closed == 3; }));
}

TEST_F(HttpTls, ClosesWhatSpeaksNoTls) {
  TestServer server({}, config_);
  TestClient garbage(server.port());
  ASSERT_TRUE(garbage.send("\1\2\3\4\5\6\7\1\2\3\4\5\6\7"));
  garbage.read_to_end();
  EXPECT_TRUE(garbage.ended());
  TestClient scan(server.port());
  scan.reset();
  EXPECT_TRUE(eventually([&] { return server.stats().malformed_requests >= 1; }));
  TlsClient client(server.port());
  EXPECT_EQ(client.fetch("/echo").status, 200);
}

TEST_F(HttpTls, TellsPlainHttpWhatItSpeaks) {
  TestServer server({}, config_);
  const std::string requests[] = {
      "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
      "DELETE /echo HTTP/1.1\r\nHost: h\r\n\r\n",
      "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
      "PATCH /echo HTTP/1.1\r\nHost: h\r\n\r\n",
  };
  for (const std::string& request : requests) {
    SCOPED_TRACE(request);
    TestClient plain(server.port());
    ASSERT_TRUE(plain.send(request));
    const TestResponse answer = plain.response();
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.headers.at("connection"), "close");
    plain.read_to_end();
    EXPECT_TRUE(plain.ended());
  }
}

TEST_F(HttpTls, TakesANewCertificateAndKeepsItsConnections) {
  TestServer server({}, config_);
  TlsClient before(server.port());
  const std::vector<unsigned char> old_certificate = before.certificate();
  write_certificate(config_.tls_certificate_file, config_.tls_key_file);
  server.server().reload_tls();
  TlsClient after(server.port());
  EXPECT_NE(after.certificate(), old_certificate);
  const std::vector<unsigned char> new_certificate = after.certificate();
  std::ofstream(config_.tls_certificate_file) << "broken";
  EXPECT_THROW(server.server().reload_tls(), Error);
  TlsClient later(server.port());
  EXPECT_EQ(later.certificate(), new_certificate);
  for (TlsClient* client : {&before, &after, &later}) {
    EXPECT_EQ(client->fetch("/echo").status, 200);
  }
}

TEST_F(HttpTls, TimesOutASilentHandshake) {
  config_.limits.header_timeout = std::chrono::milliseconds(500);
  TestServer server({}, config_);
  TestClient silent(server.port());
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_TRUE(silent.ended());
  EXPECT_EQ(server.stats().timed_out_connections, 1);
}

TEST_F(HttpTls, ClosesWithConnectionsInEveryState) {
  TestServer server({{"/wait",
                      [](ExchangePtr exchange) {
                        exchange->on_closed([exchange] {});
                        exchange->begin_stream({});
                      }}},
                    config_);
  TestClient handshaking(server.port());
  TlsClient idle(server.port());
  TlsClient waiting(server.port());
  ASSERT_TRUE(waiting.get("/wait") && waiting.read_past("\r\n\r\n"));
  server.destroy();
  waiting.read_to_end();
  EXPECT_FALSE(waiting.was_told_the_end());
}

TEST_F(HttpTls, SaysWhatIsWrongWithItsFiles) {
  Config config = config_;
  config.tls_key_file.clear();
  EXPECT_NE(message_of(config).find("both"), std::string::npos) << message_of(config);
  config = config_;
  config.tls_certificate_file = directory_ + "/absent.pem";
  EXPECT_NE(message_of(config).find("absent.pem"), std::string::npos) << message_of(config);
  config = config_;
  config.tls_key_file = config.tls_certificate_file;
  EXPECT_NE(message_of(config).find("key"), std::string::npos) << message_of(config);
  config = config_;
  const std::string other = directory_ + "/other";
  write_certificate(other + ".pem", other + "-key.pem");
  config.tls_key_file = other + "-key.pem";
  EXPECT_NE(message_of(config).find("other-key.pem"), std::string::npos) << message_of(config);
  std::ofstream(directory_ + "/empty.pem").flush();
  config.tls_certificate_file = directory_ + "/empty.pem";
  EXPECT_NE(message_of(config).find("empty.pem"), std::string::npos) << message_of(config);
}

}  // namespace
}  // namespace quire::http
