#pragma once
// What nodes send each other: frames. A frame is a head, with its kind and length, and a payload.
//
// A head has 11 bytes: the payload's length (4, the low byte first), the kind (1), whether it is
// the last part of its message (1), and for messages between ranks the ranks (2 and 2) and their
// group (1). Thread safety: plain values and free functions.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace quire::cluster {

enum class FrameKind : uint8_t {
  // The join, in this order: Hello, Challenge, a proof from each side, the node's facts.
  kHello,
  kChallenge,
  kProof,
  kFacts,
  kWelcome,  // all nodes are there
  kRefused,  // a sentence: why the join has failed
  // Within the group.
  kPing,
  kVote,    // a number
  kAgreed,  // the least of all nodes' numbers
  kBatch,   // a step for the ranks of the other nodes
  kRanks,   // from one rank to another
  kFailed,  // a sentence: why the group ends
  kEnd,     // the group ends in order
  kLeave,   // a sentence, to node 0: the node was told to stop, and asks it to end the group
  kOrder,   // what the other nodes have to do beside their steps
  kAnswer,  // a sentence, to node 0: why the node could not do so; empty if it did
  kReport,  // to node 0, in the place of a ping: figures of the node
};

struct Frame {
  FrameKind kind = FrameKind::kPing;
  bool is_last = true;
  uint16_t from = 0;
  uint16_t to = 0;
  uint8_t group = 0;
  uint32_t length = 0;  // of the payload

  bool operator==(const Frame&) const = default;
};

inline constexpr size_t kHeadBytes = 11;
using Head = std::array<std::byte, kHeadBytes>;

// The longest payload; longer messages go in several parts.
inline constexpr size_t kMaxPayload = size_t{1} << 20;
// The same until the other side has proved that it belongs to the group.
inline constexpr size_t kMaxStrangersPayload = 512;
// The most bytes of a message, all its parts together.
inline constexpr size_t kMaxMessage = size_t{1} << 30;

Head encode_head(const Frame& frame);
// Throws Error for bytes that encode_head() does not write, and for a payload above the limit.
Frame decode_head(std::span<const std::byte, kHeadBytes> head, size_t max_payload);

// The payload of a message that is a number. decode_number() throws Error for other lengths.
std::array<std::byte, 8> encode_number(int64_t value);
int64_t decode_number(std::span<const std::byte> bytes);

}  // namespace quire::cluster
