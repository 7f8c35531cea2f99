// The bytes are a whole GGUF file. What is accepted must lie inside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "loader/gguf_file.h"
#include "quire/error.h"

namespace {

bool is_inside(std::span<const std::byte> part, std::span<const std::byte> file) {
  return part.empty() ||
         (part.data() >= file.data() && part.data() + part.size() <= file.data() + file.size());
}

void read_values(const quire::GgufFile& file) {
  for (const auto& [key, value] : file.metadata()) {
    try {
      if (value.is_array) {
        file.strings(key);
      } else {
        file.string(key);
      }
    } catch (const quire::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  try {
    const quire::GgufFile file = quire::GgufFile::parse(bytes, "fuzz");
    size_t total = 0;
    for (const quire::GgufTensor& tensor : file.tensors()) {
      total += tensor.data.size();
      if (!is_inside(tensor.data, bytes) || total > size) std::abort();
    }
    for (const auto& [key, value] : file.metadata()) {
      if (!is_inside(value.bytes, bytes)) std::abort();
    }
    read_values(file);
  } catch (const quire::Error&) {
  }
  return 0;
}
