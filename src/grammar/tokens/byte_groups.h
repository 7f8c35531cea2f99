#pragma once
// Groups of characters that patterns tell apart: letters, digits, each sign, white space. Where any
// text of some groups may follow, all tokens of these are allowed without looking at each.
//
// A byte's group may depend on those before it, as white space beyond ASCII is a group of its own
// (\s and \S). Thread safety: free functions; a GroupReader for one thread at a time.
#include <array>
#include <cstdint>

#include "grammar/tokens/text_kind.h"

namespace quire::grammar {

using ByteGroups = uint64_t;  // a bit each

// Control characters and what is not UTF-8.
inline constexpr uint8_t kOtherBytes = 0;
// What begins and goes on with characters of several bytes; in addition, those that begin with two
// bytes as ECMAScript's white space does.
inline constexpr uint8_t kManyBytes = 1;
inline constexpr uint8_t kLikeSpace = 2;

namespace byte_groups_internal {

constexpr std::array<uint8_t, 128> make_ascii_groups() {
  std::array<uint8_t, 128> groups{};
  uint8_t next_sign = 8;
  for (uint8_t byte = 0x20; byte < 0x80; ++byte) {
    const uint8_t lower = byte | 0x20;
    const bool is_letter = lower >= 'a' && lower <= 'z';
    if (byte >= '0' && byte <= '9') {
      groups[byte] = 3;
    } else if (is_letter) {
      // Hexadecimal digits apart.
      groups[byte] = static_cast<uint8_t>((byte == lower ? 4 : 6) + (lower <= 'f' ? 0 : 1));
    } else {
      groups[byte] = next_sign++;
    }
  }
  return groups;
}

inline constexpr std::array<uint8_t, 128> kAscii = make_ascii_groups();

}  // namespace byte_groups_internal

inline constexpr uint8_t kNumByteGroups = byte_groups_internal::kAscii[0x7F] + 1;
static_assert(kNumByteGroups <= 64);

constexpr ByteGroups group_bit(uint8_t group) {
  return ByteGroups{1} << group;
}
constexpr uint8_t ascii_group(uint8_t byte) {
  return byte_groups_internal::kAscii[byte];
}
// All that stays within a JSON string as it is.
inline constexpr ByteGroups kPlainGroups =
    (ByteGroups{1} << kNumByteGroups) - 1 -
    (group_bit(kOtherBytes) | group_bit(ascii_group('"')) | group_bit(ascii_group('\\')));

// Whether the byte begins characters of kLikeSpace, among others.
constexpr bool leads_to_space(uint8_t byte) {
  return byte == 0xC2 || byte == 0xE1 || byte == 0xE2 || byte == 0xE3 || byte == 0xEF;
}

// The group of a byte that may come in UTF-8. `lead`: the byte just before, where that begins a
// character of several bytes; else 0.
constexpr uint8_t byte_group(uint8_t byte, uint8_t lead) {
  if (byte < 0x80) return ascii_group(byte);
  const bool is_like_space = (lead == 0xC2 && byte == 0xA0) || (lead == 0xE1 && byte == 0x9A) ||
                             (lead == 0xE2 && (byte == 0x80 || byte == 0x81)) ||
                             (lead == 0xE3 && byte == 0x80) || (lead == 0xEF && byte == 0xBB);
  return is_like_space ? kLikeSpace : kManyBytes;
}

// Says the group of each byte of a text.
class GroupReader {
 public:
  uint8_t take(uint8_t byte) {
    const bool begins = place_.more_bytes == 0;
    if (!place_.take(byte)) {
      *this = {};
      return kOtherBytes;
    }
    const uint8_t group = byte_group(byte, lead_);
    lead_ = begins && byte >= 0x80 ? byte : 0;
    return group;
  }

 private:
  Utf8Place place_;
  uint8_t lead_ = 0;
};

}  // namespace quire::grammar
