// The bytes are a scheduled batch, or what goes between batches about adapters. What is accepted is
// what is written for what was read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "quire/error.h"
#include "request/batch_encoding.h"
#include "request/lora_order.h"

namespace {

template <typename Write>
void expect_written(const Write& write, std::span<const std::byte> bytes) {
  try {
    if (!std::ranges::equal(write(), bytes)) std::abort();
  } catch (const quire::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  expect_written([&] { return quire::encode_batch(quire::decode_batch(bytes)); }, bytes);
  expect_written([&] { return quire::encode_lora_order(quire::decode_lora_order(bytes)); }, bytes);
  expect_written(
      [&] { return quire::encode_forgotten_loras(quire::decode_forgotten_loras(bytes)); }, bytes);
  return 0;
}
