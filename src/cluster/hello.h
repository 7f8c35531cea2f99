#pragma once
// What a node and node 0 say to each other before they are a group, as bytes and back.
//
// Thread safety: plain values and free functions.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace quire::cluster {

inline constexpr uint16_t kProtocolVersion = 4;

// Drawn anew for each connection, so that what was said on one cannot be replayed on another.
using Nonce = std::array<std::byte, 32>;

// The node's first message.
struct Hello {
  uint16_t version = kProtocolVersion;
  uint32_t node = 0;
  Nonce nonce{};

  bool operator==(const Hello&) const = default;
};

// Settings that must be the same on all nodes, by names that a user knows.
using Facts = std::vector<std::pair<std::string, std::string>>;

inline constexpr size_t kMaxFacts = 64;
inline constexpr size_t kMaxFactBytes = 1024;  // of a name, and of a value

std::vector<std::byte> encode_hello(const Hello& hello);
std::vector<std::byte> encode_nonce(const Nonce& nonce);
std::vector<std::byte> encode_facts(const Facts& facts);

// These throw Error for bytes that the functions above do not write. decode_hello() also accepts a
// hello of another version, whatever follows the version.
Hello decode_hello(std::span<const std::byte> bytes);
Nonce decode_nonce(std::span<const std::byte> bytes);
Facts decode_facts(std::span<const std::byte> bytes);

// The first difference, as a sentence that names node `node`; empty if there is none. `mine` are
// node 0's facts.
std::string difference(const Facts& mine, const Facts& theirs, int node);

// Text from another node, shortened, and without characters that a terminal would not print as
// text.
std::string as_sentence(std::span<const std::byte> bytes);

}  // namespace quire::cluster
