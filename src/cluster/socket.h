#pragma once
// TCP between the nodes of a group: blocking calls, each with a time limit.
//
// Thread safety: one thread reads and one writes at a time; shut_down() from any.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace quire::cluster {

using Clock = std::chrono::steady_clock;

enum class Io {
  kDone,
  kClosed,    // by the other side, or a failure of the network
  kTimedOut,  // nothing came, or nothing was taken, for as long as the limit
};

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  // `limit` is for each wait; a deadline, if given, is for the whole call.
  Io receive(std::span<std::byte> bytes, Clock::duration limit,
             std::optional<Clock::time_point> deadline = std::nullopt) const;
  // Sends two parts as one message.
  Io send(std::span<const std::byte> head, std::span<const std::byte> body, Clock::duration limit,
          std::optional<Clock::time_point> deadline = std::nullopt) const;
  // Whether send() would write something without waiting.
  bool takes_now() const;
  // Whether the other side has hung up and all that it sent was read.
  bool is_closed() const;
  // Ends all waits in receive() and send(), now and later.
  void shut_down() const;
  // Ends sending; what comes can still be read.
  void finish_sending() const;
  // The other side of a connection: "10.0.0.2:51234".
  std::string peer() const;
  uint16_t port() const;  // its own

 private:
  int fd_ = -1;
};

// Whether an address is this machine's loopback ("localhost", 127.0.0.0/8, "::1").
bool is_loopback(const std::string& address);

// Listens on one address, and on no other. Throws Error naming address and port, also for a name
// that means only this machine's loopback, as a host's own name does in many an /etc/hosts.
Socket listen_at(const std::string& address, uint16_t port);
// Waits for a connection, or until `wake_fd` can be read; then returns nothing.
std::optional<Socket> accept_from(const Socket& listener, int wake_fd);
// Returns nothing if no process listens there yet or the address cannot be resolved yet. `problem`,
// if not null, then says why.
std::optional<Socket> connect_to(const std::string& address, uint16_t port,
                                 Clock::time_point deadline, std::string* problem = nullptr);

}  // namespace quire::cluster
