#pragma once
// Frames over a socket, encrypted once both sides have proved that they know the secret.
//
// Thread safety: send() from any thread, receive() from one at a time, shut_down() from any.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/frame.h"
#include "cluster/secret.h"
#include "cluster/socket.h"

namespace quire::cluster {

// A node that is silent for so long is lost: it should ping every kPingInterval.
inline constexpr std::chrono::seconds kSilence{8};
inline constexpr std::chrono::milliseconds kPingInterval{1000};

struct Received {
  Frame frame;
  std::vector<std::byte> payload;
};

class Connection {
 public:
  explicit Connection(Socket socket) : socket_(std::move(socket)), peer_(socket_.peer()) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Encrypts all frames from here on. Call it before threads share the connection.
  void encrypt(const Digest& send_key, const Digest& receive_key);
  void set_deadline(std::optional<Clock::time_point> deadline) { deadline_ = deadline; }

  // One payload of at most kMaxPayload; `frame.length` is set from it.
  Io send(Frame frame, std::span<const std::byte> payload = {});
  Io send(FrameKind kind, std::span<const std::byte> payload = {}) {
    return send(Frame{.kind = kind}, payload);
  }
  Io send(FrameKind kind, std::string_view text) {
    return send(kind, std::as_bytes(std::span(text)));
  }
  // Like send(), but does nothing if another thread is sending.
  void send_unless_busy(FrameKind kind, std::span<const std::byte> payload = {});
  // Gives up after a second: for a last word to a node that may not listen any more.
  void try_send(FrameKind kind, std::string_view text);
  // Sends bytes of any length, in parts.
  Io send_parts(Frame frame, std::span<const std::byte> bytes);

  // Throws Error for bytes that are not a frame, and for frames that were changed on the way.
  Io receive(Received& received, size_t max_payload = kMaxPayload);

  void shut_down() const { socket_.shut_down(); }
  bool is_closed() const { return socket_.is_closed(); }
  void finish_sending() const { socket_.finish_sending(); }
  // The other side, also when it has hung up.
  const std::string& peer() const { return peer_; }
  uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  Io send_locked(Frame frame, std::span<const std::byte> payload, Clock::duration limit);

  Socket socket_;
  const std::string peer_;  // a connection that has ended cannot be asked
  std::optional<Clock::time_point> deadline_;
  std::mutex send_mutex_;
  std::optional<Sealer> seals_;
  std::optional<Sealer> opens_;
  std::vector<std::byte> sealed_;
  std::atomic<uint64_t> bytes_sent_ = 0;
};

}  // namespace quire::cluster
