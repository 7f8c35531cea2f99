#include "cluster/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "quire/error.h"

namespace quire::cluster {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Null where the name is not known; `problem` says why.
Addresses resolve(const std::string& address, uint16_t port, bool listens, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) problem = gai_strerror(error);
  return {error == 0 ? found : nullptr, freeaddrinfo};
}

void set_option(int fd, int level, int option, int value = 1) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// A host that lost its power closes no connection. So this kernel closes it when what was sent is
// not acknowledged for this long. A host acknowledges even where its process is stopped.
constexpr int kUnheardMs = 8000;

void set_options_of_connection(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnheardMs);
}

// Whether `events` came within the limit and before the deadline.
Io wait_for(int fd, short events, Clock::duration limit,
            std::optional<Clock::time_point> deadline) {
  const Clock::time_point begin = Clock::now();
  const Clock::time_point end = deadline ? std::min(*deadline, begin + limit) : begin + limit;
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return Io::kTimedOut;
    pollfd state{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&state, 1, static_cast<int>(std::min<int64_t>(left, 60'000)));
    if (ready > 0) return Io::kDone;
    if (ready < 0 && errno != EINTR) return Io::kClosed;
  }
}

bool would_wait() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

std::string text_of(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host.data(), host.size(),
                  service.data(), service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  const std::string name = host.data();
  return name.find(':') == std::string::npos ? fmt::format("{}:{}", name, service.data())
                                             : fmt::format("[{}]:{}", name, service.data());
}

// An address as a number: "10.0.0.2".
std::string host_of(const sockaddr& address, socklen_t length) {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(&address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an unknown address";
  }
  return host.data();
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& in4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(in4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.sa_family != AF_INET6) return false;
  const in6_addr& in6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&in6) || (IN6_IS_ADDR_V4MAPPED(&in6) && in6.s6_addr[12] == 127);
}

// 0, or the error.
int finish_connecting(int fd, const addrinfo& at, Clock::time_point deadline) {
  if (connect(fd, at.ai_addr, at.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (wait_for(fd, POLLOUT, std::chrono::seconds(10), deadline) != Io::kDone) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Io Socket::receive(std::span<std::byte> bytes, Clock::duration limit,
                   std::optional<Clock::time_point> deadline) const {
  while (!bytes.empty()) {
    const ssize_t count = recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
      continue;
    }
    if (count == 0 || !would_wait()) return Io::kClosed;
    if (const Io io = wait_for(fd_, POLLIN, limit, deadline); io != Io::kDone) return io;
  }
  return Io::kDone;
}

Io Socket::send(std::span<const std::byte> head, std::span<const std::byte> body,
                Clock::duration limit, std::optional<Clock::time_point> deadline) const {
  const auto part = [](std::span<const std::byte> bytes) {
    return iovec{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  };
  while (!head.empty() || !body.empty()) {
    std::array<iovec, 2> parts = {part(head), part(body)};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    const ssize_t count = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
      if (!would_wait()) return Io::kClosed;
      if (const Io io = wait_for(fd_, POLLOUT, limit, deadline); io != Io::kDone) return io;
      continue;
    }
    const size_t of_head = std::min(head.size(), static_cast<size_t>(count));
    head = head.subspan(of_head);
    body = body.subspan(static_cast<size_t>(count) - of_head);
  }
  return Io::kDone;
}

bool Socket::takes_now() const {
  pollfd polled{.fd = fd_, .events = POLLOUT, .revents = 0};
  return poll(&polled, 1, 0) == 1;
}

bool Socket::is_closed() const {
  std::byte next{};
  const ssize_t count = recv(fd_, &next, 1, MSG_DONTWAIT | MSG_PEEK);
  return count == 0 || (count < 0 && !would_wait());
}

void Socket::shut_down() const {
  if (fd_ >= 0) shutdown(fd_, SHUT_RDWR);
}

void Socket::finish_sending() const {
  shutdown(fd_, SHUT_WR);
}

std::string Socket::peer() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getpeername(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return "an unknown address";
  }
  return text_of(address, length);
}

uint16_t Socket::port() const {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool is_loopback(const std::string& address) {
  if (address == "localhost" || address == "::1") return true;
  in_addr parsed{};
  return inet_pton(AF_INET, address.c_str(), &parsed) == 1 && (ntohl(parsed.s_addr) >> 24) == 127;
}

Socket listen_at(const std::string& address, uint16_t port) {
  constexpr int kBacklog = 64;
  std::string problem;
  std::string only_loopback;
  const Addresses addresses = resolve(address, port, true, problem);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    if (!is_loopback(address) && is_loopback(*at->ai_addr)) {
      only_loopback = host_of(*at->ai_addr, at->ai_addrlen);
      continue;
    }
    Socket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (socket.fd() >= 0) {
      set_option(socket.fd(), SOL_SOCKET, SO_REUSEADDR);
      if (bind(socket.fd(), at->ai_addr, at->ai_addrlen) == 0 &&
          listen(socket.fd(), kBacklog) == 0) {
        return socket;
      }
    }
    problem = std::strerror(errno);
  }
  if (!only_loopback.empty() && problem.empty()) {
    throw Error(fmt::format(
        "Node 0 cannot wait for the other nodes at {}:{}: the name means {} here, which other "
        "machines cannot reach (/etc/hosts often says so of a machine's own name); give "
        "--master-addr the address of node 0 in the network of the nodes, or 127.0.0.1 where all "
        "nodes are on this machine.",
        address, port, only_loopback));
  }
  throw Error(fmt::format(
      "Node 0 cannot wait for the other nodes at {}:{}: {}; --master-addr has to be an address of "
      "node 0, and --master-port one that is free there.",
      address, port, problem));
}

std::optional<Socket> accept_from(const Socket& listener, int wake_fd) {
  while (true) {
    std::array<pollfd, 2> fds = {pollfd{.fd = wake_fd, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = listener.fd(), .events = POLLIN, .revents = 0}};
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return std::nullopt;
    if (fds[0].revents != 0) return std::nullopt;
    if (fds[1].revents == 0) continue;
    Socket socket(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.fd() < 0) {
      // No more files, perhaps: the connection stays in the queue, and a loop would spin.
      constexpr int kPauseMs = 100;
      if (poll(fds.data(), 1, kPauseMs) > 0) return std::nullopt;
      continue;
    }
    set_options_of_connection(socket.fd());
    return socket;
  }
}

std::optional<Socket> connect_to(const std::string& address, uint16_t port,
                                 Clock::time_point deadline, std::string* problem) {
  std::string ignored;
  std::string& why = problem == nullptr ? ignored : *problem;
  const Addresses addresses = resolve(address, port, false, why);
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    Socket socket(
        ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (socket.fd() < 0) continue;
    if (const int error = finish_connecting(socket.fd(), *at, deadline); error != 0) {
      why = fmt::format("{}: {}", host_of(*at->ai_addr, at->ai_addrlen), std::strerror(error));
      continue;
    }
    set_options_of_connection(socket.fd());
    return socket;
  }
  return std::nullopt;
}

}  // namespace quire::cluster
