#include "cluster/frame.h"

#include <fmt/format.h>

#include "quire/error.h"

namespace quire::cluster {
namespace {

void put(Head& head, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) head[at + i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t get(std::span<const std::byte> head, size_t at, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value |= static_cast<uint64_t>(std::to_integer<uint8_t>(head[at + i])) << (8 * i);
  }
  return value;
}

}  // namespace

Head encode_head(const Frame& frame) {
  Head head{};
  put(head, 0, frame.length, 4);
  put(head, 4, static_cast<uint8_t>(frame.kind), 1);
  put(head, 5, frame.is_last ? 1 : 0, 1);
  put(head, 6, frame.from, 2);
  put(head, 8, frame.to, 2);
  put(head, 10, frame.group, 1);
  return head;
}

Frame decode_head(std::span<const std::byte, kHeadBytes> head, size_t max_payload) {
  const uint64_t length = get(head, 0, 4);
  const uint64_t kind = get(head, 4, 1);
  const uint64_t is_last = get(head, 5, 1);
  if (length > max_payload) {
    throw Error(fmt::format("A message of a group's node has {} bytes; expected at most {}.",
                            length, max_payload));
  }
  if (kind > static_cast<uint8_t>(FrameKind::kReport) || is_last > 1) {
    throw Error("The bytes are no message of a group's node.");
  }
  return {.kind = static_cast<FrameKind>(kind),
          .is_last = is_last == 1,
          .from = static_cast<uint16_t>(get(head, 6, 2)),
          .to = static_cast<uint16_t>(get(head, 8, 2)),
          .group = static_cast<uint8_t>(get(head, 10, 1)),
          .length = static_cast<uint32_t>(length)};
}

std::array<std::byte, 8> encode_number(int64_t value) {
  std::array<std::byte, 8> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes.at(i) = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
  }
  return bytes;
}

int64_t decode_number(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(int64_t)) throw Error("A number of a group's node is cut off.");
  return static_cast<int64_t>(get(bytes, 0, sizeof(int64_t)));
}

}  // namespace quire::cluster
