#include "tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace quire::tokenizer_internal {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What may follow a lead byte: how many bytes the character has, and the range of its second byte
// (Unicode, table 3-7). size 0 means that the byte leads nothing.
struct Lead {
  std::uint8_t size;
  std::uint8_t low;
  std::uint8_t high;
};

Lead classify_lead(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool is_ascii8(const char* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return (word & 0x8080808080808080u) == 0;
}

}  // namespace

Utf8Prefix classify_utf8_prefix(std::string_view bytes) {
  if (bytes.empty()) return {};
  const Lead lead = classify_lead(static_cast<unsigned char>(bytes[0]));
  if (lead.size == 0) return {0, 1};
  for (std::size_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned low = i == 1 ? lead.low : 0x80;
    const unsigned high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {0, i};
  }
  return {lead.size, 0};
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (at + 8 <= text.size() && is_ascii8(text.data() + at)) {
      at += 8;
      continue;
    }
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Prefix prefix = classify_utf8_prefix(text.substr(at, 4));
    if (prefix.valid == 0) return at;
    at += prefix.valid;
  }
  return std::nullopt;
}

void drain_utf8_lossy(std::string& bytes, bool at_end, std::string& out) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Prefix prefix = classify_utf8_prefix(std::string_view(bytes).substr(at));
    if (prefix.valid > 0) {
      out.append(bytes, at, prefix.valid);
      at += prefix.valid;
    } else if (prefix.invalid > 0) {
      out.append(kReplacement);
      at += prefix.invalid;
    } else if (at_end) {
      out.append(kReplacement);
      at = bytes.size();
    } else {
      break;
    }
  }
  bytes.erase(0, at);
}

}  // namespace quire::tokenizer_internal
