#include "cluster/connection.h"

#include <algorithm>
#include <array>
#include <thread>

#include "quire/error.h"

namespace quire::cluster {

void Connection::encrypt(const Digest& send_key, const Digest& receive_key) {
  seals_.emplace(send_key, Sealer::Way::kSeal);
  opens_.emplace(receive_key, Sealer::Way::kOpen);
}

Io Connection::send(Frame frame, std::span<const std::byte> payload) {
  const std::lock_guard lock(send_mutex_);
  return send_locked(frame, payload, kSilence);
}

void Connection::send_unless_busy(FrameKind kind, std::span<const std::byte> payload) {
  const std::unique_lock lock(send_mutex_, std::try_to_lock);
  // Where nothing can be written, the other side is the silent one. A part of a frame would end the
  // connection.
  if (!lock || !socket_.takes_now()) return;
  if (send_locked({.kind = kind}, payload, kSilence) != Io::kDone) socket_.shut_down();
}

void Connection::try_send(FrameKind kind, std::string_view text) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (const std::unique_lock lock(send_mutex_, std::try_to_lock); lock) {
      send_locked({.kind = kind}, std::as_bytes(std::span(text)), std::chrono::seconds(1));
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Io Connection::send_parts(Frame frame, std::span<const std::byte> bytes) {
  // One lock for all parts, so that those of two messages do not mix.
  const std::lock_guard lock(send_mutex_);
  do {
    const auto part = bytes.first(std::min(bytes.size(), kMaxPayload));
    bytes = bytes.subspan(part.size());
    frame.is_last = bytes.empty();
    if (const Io io = send_locked(frame, part, kSilence); io != Io::kDone) return io;
  } while (!bytes.empty());
  return Io::kDone;
}

Io Connection::send_locked(Frame frame, std::span<const std::byte> payload, Clock::duration limit) {
  frame.length = static_cast<uint32_t>(payload.size());
  const Head head = encode_head(frame);
  bytes_sent_ += head.size() + payload.size();
  if (!seals_) return socket_.send(head, payload, limit, deadline_);
  bytes_sent_ += kTagBytes;
  sealed_.resize(payload.size() + kTagBytes);
  std::ranges::copy(payload, sealed_.begin());
  const std::span sealed(sealed_);
  seals_->seal(head, sealed.first(payload.size()), sealed.last<kTagBytes>());
  return socket_.send(head, sealed, limit, deadline_);
}

Io Connection::receive(Received& received, size_t max_payload) {
  Head head{};
  if (const Io io = socket_.receive(head, kSilence, deadline_); io != Io::kDone) return io;
  received.frame = decode_head(head, max_payload);
  received.payload.resize(received.frame.length);
  if (const Io io = socket_.receive(received.payload, kSilence, deadline_); io != Io::kDone) {
    return io;
  }
  if (!opens_) return Io::kDone;
  std::array<std::byte, kTagBytes> tag{};
  if (const Io io = socket_.receive(tag, kSilence, deadline_); io != Io::kDone) return io;
  if (!opens_->open(head, received.payload, tag)) {
    throw Error("A message of a group's node was changed on its way.");
  }
  return Io::kDone;
}

}  // namespace quire::cluster
