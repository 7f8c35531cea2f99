#pragma once
// How nodes prove to each other that they know the group's secret, and the keys of their
// encryption.
//
// Each side answers the nonces of both sides with an HMAC-SHA256 (RFC 2104) under the secret, over
// text that says which side it is; so an answer that is sent back to its sender proves nothing.
// Each direction has its own key, derived in the same way, for AES-256-GCM (NIST SP 800-38D), whose
// nonces count the frames. Thread safety: a Sealer from one thread at a time, functions from any.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "cluster/hello.h"

namespace quire::cluster {

using Digest = std::array<std::byte, 32>;

inline constexpr size_t kTagBytes = 16;

// Throws Error where the machine has no random numbers.
Nonce draw_nonce();

// What was said on one connection: the bytes of its Hello, then those of its Challenge.
class Transcript {
 public:
  Transcript(std::string secret, std::span<const std::byte> hello,
             std::span<const std::byte> challenge);

  Digest proof_of_node() const;
  Digest proof_of_node_0() const;
  Digest key_to_node() const;
  Digest key_to_node_0() const;

 private:
  Digest digest(std::string_view purpose) const;

  std::string secret_;
  std::string said_;
};

// Compares in constant time.
bool is_same(std::span<const std::byte> given, const Digest& expected);

// Encrypts the frames of one direction, or decrypts them, in the order in which they are sent.
class Sealer {
 public:
  enum class Way { kSeal, kOpen };
  Sealer(const Digest& key, Way way);
  ~Sealer();
  Sealer(const Sealer&) = delete;
  Sealer& operator=(const Sealer&) = delete;

  // Encrypts in place and writes `tag`, which also protects the head; the head stays readable.
  void seal(std::span<const std::byte> head, std::span<std::byte> payload,
            std::span<std::byte, kTagBytes> tag);
  // Decrypts in place. False where head, payload or tag were changed, or are not those of the next
  // frame.
  bool open(std::span<const std::byte> head, std::span<std::byte> payload,
            std::span<const std::byte, kTagBytes> tag);

 private:
  void start(std::span<const std::byte> head);
  void update(std::span<std::byte> payload);

  struct Context;
  std::unique_ptr<Context> context_;
  uint64_t count_ = 0;
};

}  // namespace quire::cluster
