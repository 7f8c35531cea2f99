// The bytes are a scheduled batch. What is accepted is written and read as itself.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "quire/error.h"
#include "request/batch_encoding.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto bytes =
        quire::encode_batch(quire::decode_batch(std::as_bytes(std::span(data, size))));
    if (quire::encode_batch(quire::decode_batch(bytes)) != bytes) std::abort();
  } catch (const quire::Error&) {
  }
  return 0;
}
