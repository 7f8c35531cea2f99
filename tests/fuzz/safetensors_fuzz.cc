// The bytes are a whole safetensors file. What is accepted must lie inside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "loader/safetensors.h"
#include "quire/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  try {
    size_t total = 0;
    for (const quire::CheckpointTensor& tensor : quire::parse_safetensors(file, "fuzz")) {
      const bool inside = tensor.data >= file.data() &&
                          tensor.bytes <= static_cast<size_t>(file.data() + size - tensor.data);
      total += tensor.bytes;
      if (!inside || total > size) std::abort();
    }
  } catch (const quire::Error&) {
  }
  return 0;
}
