// The bytes are a scheduled batch. What is accepted is what is written for what was read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "quire/error.h"
#include "request/batch_encoding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    if (!std::ranges::equal(quire::encode_batch(quire::decode_batch(bytes)), bytes)) std::abort();
  } catch (const quire::Error&) {
  }
  return 0;
}
