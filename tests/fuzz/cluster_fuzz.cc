// The bytes are what a stranger or a node says before and in a group. What is accepted is what is
// written for what was read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "cluster/frame.h"
#include "cluster/hello.h"
#include "quire/error.h"

namespace {

using namespace quire::cluster;  // NOLINT(google-build-using-namespace)
using Bytes = std::span<const std::byte>;

void expect(bool ok) {
  if (!ok) std::abort();
}

template <typename Read>
void read(const Read& read_bytes) {
  try {
    read_bytes();
  } catch (const quire::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes = std::as_bytes(std::span(data, size));
  read([&] {
    const Hello hello = decode_hello(bytes);
    if (hello.version == kProtocolVersion) expect(std::ranges::equal(encode_hello(hello), bytes));
  });
  read([&] { expect(std::ranges::equal(encode_nonce(decode_nonce(bytes)), bytes)); });
  read([&] {
    const Facts facts = decode_facts(bytes);
    expect(facts.size() <= kMaxFacts && std::ranges::equal(encode_facts(facts), bytes));
    expect(difference(facts, facts, 1).empty());
  });
  if (size >= kHeadBytes) {
    read([&] {
      const auto head = bytes.first<kHeadBytes>();
      const Frame frame = decode_head(head, kMaxStrangersPayload);
      expect(frame.length <= kMaxStrangersPayload);
      expect(std::ranges::equal(encode_head(frame), head));
    });
  }
  for (const char c : as_sentence(bytes)) expect(static_cast<unsigned char>(c) >= 0x20);
  return 0;
}
