#include "cluster/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "quire/error.h"

namespace quire::cluster {
namespace {

constexpr std::string_view kMagic = "quire group ";

[[noreturn]] void refuse_bytes() {
  throw Error("The bytes are no greeting of a quire node.");
}

void put(std::vector<std::byte>& bytes, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void put(std::vector<std::byte>& bytes, std::string_view text) {
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

class GreetingReader {
 public:
  explicit GreetingReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size()) refuse_bytes();
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  uint64_t number(size_t count) {
    uint64_t value = 0;
    const auto raw = take(count);
    for (size_t i = 0; i < count; ++i) {
      value |= static_cast<uint64_t>(std::to_integer<uint8_t>(raw[i])) << (8 * i);
    }
    return value;
  }
  std::string text(size_t most) {
    const uint64_t length = number(2);
    if (length > most) refuse_bytes();
    const auto raw = take(length);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  Nonce nonce() {
    Nonce nonce{};
    std::ranges::copy(take(nonce.size()), nonce.begin());
    return nonce;
  }
  void end() const {
    if (!bytes_.empty()) refuse_bytes();
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> encode_hello(const Hello& hello) {
  std::vector<std::byte> bytes;
  put(bytes, kMagic);
  put(bytes, hello.version, 2);
  put(bytes, hello.node, 4);
  bytes.insert(bytes.end(), hello.nonce.begin(), hello.nonce.end());
  return bytes;
}

Hello decode_hello(std::span<const std::byte> bytes) {
  GreetingReader reader(bytes);
  if (!std::ranges::equal(reader.take(kMagic.size()), std::as_bytes(std::span(kMagic)))) {
    refuse_bytes();
  }
  Hello hello;
  hello.version = static_cast<uint16_t>(reader.number(2));
  if (hello.version != kProtocolVersion) return hello;
  hello.node = static_cast<uint32_t>(reader.number(4));
  hello.nonce = reader.nonce();
  reader.end();
  return hello;
}

std::vector<std::byte> encode_nonce(const Nonce& nonce) {
  return {nonce.begin(), nonce.end()};
}

Nonce decode_nonce(std::span<const std::byte> bytes) {
  GreetingReader reader(bytes);
  const Nonce nonce = reader.nonce();
  reader.end();
  return nonce;
}

std::vector<std::byte> encode_facts(const Facts& facts) {
  std::vector<std::byte> bytes;
  put(bytes, facts.size(), 2);
  for (const auto& [name, value] : facts) {
    for (const std::string_view text : {std::string_view(name), std::string_view(value)}) {
      const std::string_view part = text.substr(0, kMaxFactBytes);
      put(bytes, part.size(), 2);
      put(bytes, part);
    }
  }
  return bytes;
}

Facts decode_facts(std::span<const std::byte> bytes) {
  GreetingReader reader(bytes);
  const uint64_t count = reader.number(2);
  if (count > kMaxFacts) refuse_bytes();
  Facts facts;
  for (uint64_t i = 0; i < count; ++i) {
    std::string name = reader.text(kMaxFactBytes);
    std::string value = reader.text(kMaxFactBytes);
    facts.emplace_back(std::move(name), std::move(value));
  }
  reader.end();
  return facts;
}

std::string difference(const Facts& mine, const Facts& theirs, int node) {
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    if (i >= mine.size() || i >= theirs.size() || mine[i].first != theirs[i].first) {
      return fmt::format("Node {} is another build of quire than node 0; expected the same.", node);
    }
    if (mine[i].second != theirs[i].second) {
      return fmt::format(
          "Node {} differs from node 0 in {}: {} there, {} on node 0; expected the same on every "
          "node.",
          node, mine[i].first, theirs[i].second, mine[i].second);
    }
  }
  return {};
}

std::string as_sentence(std::span<const std::byte> bytes) {
  constexpr size_t kMost = 2000;
  std::string text;
  for (const std::byte byte : bytes.first(std::min(bytes.size(), kMost))) {
    const auto c = std::to_integer<unsigned char>(byte);
    text.push_back(c < 0x20 || c == 0x7f ? ' ' : static_cast<char>(c));
  }
  return text;
}

}  // namespace quire::cluster
