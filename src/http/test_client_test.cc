// The definitions of test_client.h. (A test's name, so that they stay out of the library.)
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "http/test_client.h"

namespace quire::http {
namespace {

int connect_to(uint16_t port, const TestClient::Options& options) {
  const bool v6 = options.address.find(':') != std::string::npos;
  const int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return -1;
  const timeval limit{30, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (options.receive_buffer > 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options.receive_buffer, sizeof options.receive_buffer);
  }
  if (!options.from.empty()) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, options.from.c_str(), &own.sin_addr);
    bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own);
  }
  sockaddr_in to4{};
  to4.sin_family = AF_INET;
  to4.sin_port = htons(port);
  sockaddr_in6 to6{};
  to6.sin6_family = AF_INET6;
  to6.sin6_port = htons(port);
  inet_pton(v6 ? AF_INET6 : AF_INET, options.address.c_str(),
            v6 ? static_cast<void*>(&to6.sin6_addr) : &to4.sin_addr);
  const int error = v6 ? connect(fd, reinterpret_cast<sockaddr*>(&to6), sizeof to6)
                       : connect(fd, reinterpret_cast<sockaddr*>(&to4), sizeof to4);
  if (error == 0) return fd;
  close(fd);
  return -1;
}

}  // namespace

TestClient::TestClient(uint16_t port, const Options& options) : fd_(connect_to(port, options)) {
  ended_ = fd_ < 0;
}

TestClient::~TestClient() {
  if (fd_ >= 0) close(fd_);
}

long TestClient::read_some(char* data, std::size_t size) {
  return recv(fd_, data, size, 0);
}
long TestClient::write_some(const char* data, std::size_t size) {
  return ::send(fd_, data, size, MSG_NOSIGNAL);
}

bool TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const long n = write_some(bytes.data(), bytes.size());
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool TestClient::get(std::string_view path) {
  return send("GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n\r\n");
}

bool TestClient::post(std::string_view path, std::string_view body) {
  return send("POST " + std::string(path) + " HTTP/1.1\r\nHost: test\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + std::string(body));
}

bool TestClient::fill() {
  char buffer[16 << 10];
  const long n = ended_ ? 0 : read_some(buffer, sizeof buffer);
  if (n <= 0) {
    // A time-out of the socket is a hang, and no end.
    ended_ = ended_ || n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    return false;
  }
  input_.append(buffer, static_cast<std::size_t>(n));
  return true;
}

bool TestClient::read_line(std::string& line) {
  std::size_t end = 0;
  while ((end = input_.find("\r\n")) == std::string::npos) {
    if (!fill()) return false;
  }
  line = input_.substr(0, end);
  input_.erase(0, end + 2);
  return true;
}

bool TestClient::read_exactly(std::size_t size, std::string& body) {
  while (input_.size() < size && fill()) {
  }
  const std::size_t n = std::min(size, input_.size());
  body.append(input_, 0, n);
  input_.erase(0, n);
  return n == size;
}

bool TestClient::read_chunks(std::string& body) {
  std::string line;
  for (;;) {
    if (!read_line(line)) return false;
    const std::size_t size = std::stoul(line, nullptr, 16);
    if (!read_exactly(size, body) || !read_line(line)) return false;
    if (size == 0) return true;
  }
}

TestResponse TestClient::response(bool head_only) {
  TestResponse response;
  std::string line;
  if (!read_line(line) || !line.starts_with("HTTP/1.1 ")) return response;
  response.status = std::stoi(line.substr(9));
  for (;;) {
    if (!read_line(line)) return {};
    if (line.empty()) break;
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) return {};
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    response.headers[name] = line.substr(colon + 2);
  }
  const auto length = response.headers.find("content-length");
  if (head_only || response.status / 100 == 1 || response.status == 204) {
    response.whole = true;
  } else if (response.headers.contains("transfer-encoding")) {
    response.whole = read_chunks(response.body);
  } else if (length != response.headers.end()) {
    response.whole = read_exactly(std::stoul(length->second), response.body);
  } else {
    response.body = read_to_end();
    response.whole = ended_;
  }
  return response;
}

TestResponse TestClient::fetch(std::string_view path) {
  if (!get(path)) return {};
  return response();
}

bool TestClient::read_past(std::string_view text) {
  std::size_t at = 0;
  while ((at = input_.find(text)) == std::string::npos) {
    if (!fill()) return false;
  }
  input_.erase(0, at + text.size());
  return true;
}

std::string TestClient::read_to_end() {
  while (fill()) {
  }
  return std::exchange(input_, {});
}

void TestClient::end_output() {
  shutdown(fd_, SHUT_WR);
}

void TestClient::reset() {
  const linger at_once{1, 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(std::exchange(fd_, -1));
}

Config test_config() {
  Config config;
  config.port = 0;
  config.error_response = [](int status, const std::string& message) {
    Response response;
    response.body =
        "{\"status\": " + std::to_string(status) + ", \"message\": \"" + message + "\"}";
    return response;
  };
  return config;
}

TestServer::TestServer(std::map<std::string, Route> routes, Config config)
    : routes_(std::move(routes)) {
  config.port = 0;
  routes_["/echo"] = [](std::shared_ptr<Exchange> exchange) {
    const Request& request = exchange->request();
    Response response;
    response.content_type = "text/plain";
    response.body = request.method + " " + request.path + "?" + request.query + " " + request.body;
    exchange->respond(std::move(response));
  };
  server_ = std::make_unique<Server>(std::move(config), [this](std::shared_ptr<Exchange> exchange) {
    const auto route = routes_.find(exchange->request().path);
    if (route != routes_.end()) return route->second(std::move(exchange));
    Response response;
    response.status = 404;
    exchange->respond(std::move(response));
  });
  server_->start();
}

}  // namespace quire::http
