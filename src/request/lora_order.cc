#include "request/lora_order.h"

#include <fmt/format.h>

#include <string_view>

#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kOrderMagic = "QL";
constexpr std::string_view kForgottenMagic = "QF";
constexpr size_t kNumberBytes = 8;

[[noreturn]] void refuse_order(std::string_view problem) {
  throw Error(fmt::format("What node 0 says of adapters cannot be read: {}.", problem));
}

void put_text(std::vector<std::byte>& bytes, std::string_view text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

void put_number(std::vector<std::byte>& bytes, uint64_t value) {
  for (size_t i = 0; i < kNumberBytes; ++i)
    bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
}

std::string text_of_bytes(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t number_at(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kNumberBytes; ++i) {
    value |= static_cast<uint64_t>(std::to_integer<uint8_t>(bytes[i])) << (8 * i);
  }
  return value;
}

bool begins_with(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && text_of_bytes(bytes.first(magic.size())) == magic;
}

}  // namespace

std::vector<std::byte> encode_lora_order(const LoraOrder& order) {
  std::vector<std::byte> bytes;
  put_text(bytes, kOrderMagic);
  put_number(bytes, order.id);
  bytes.push_back(static_cast<std::byte>(order.content_hash.size()));
  put_text(bytes, order.content_hash);
  put_text(bytes, order.path);
  return bytes;
}

LoraOrder decode_lora_order(std::span<const std::byte> bytes) {
  if (!begins_with(bytes, kOrderMagic)) refuse_order("it is no order to load one");
  bytes = bytes.subspan(kOrderMagic.size());
  if (bytes.size() < kNumberBytes + 1) refuse_order("it ends too early");
  LoraOrder order;
  order.id = number_at(bytes);
  const auto hash_bytes = std::to_integer<size_t>(bytes[kNumberBytes]);
  bytes = bytes.subspan(kNumberBytes + 1);
  if (bytes.size() < hash_bytes) refuse_order("it ends too early");
  order.content_hash = text_of_bytes(bytes.first(hash_bytes));
  order.path = text_of_bytes(bytes.subspan(hash_bytes));
  if (order.id == 0) refuse_order("an adapter has no number");
  if (order.path.empty() || order.path.find('\0') != std::string::npos) {
    refuse_order("an adapter has no path");
  }
  return order;
}

std::vector<std::byte> encode_forgotten_loras(std::span<const uint64_t> ids) {
  std::vector<std::byte> bytes;
  put_text(bytes, kForgottenMagic);
  for (const uint64_t id : ids) put_number(bytes, id);
  return bytes;
}

bool are_forgotten_loras(std::span<const std::byte> bytes) {
  return begins_with(bytes, kForgottenMagic);
}

std::vector<uint64_t> decode_forgotten_loras(std::span<const std::byte> bytes) {
  if (!are_forgotten_loras(bytes)) refuse_order("they are no adapters to forget");
  bytes = bytes.subspan(kForgottenMagic.size());
  if (bytes.size() % kNumberBytes != 0) refuse_order("a number is cut off");
  std::vector<uint64_t> ids;
  for (; !bytes.empty(); bytes = bytes.subspan(kNumberBytes)) ids.push_back(number_at(bytes));
  return ids;
}

}  // namespace quire
