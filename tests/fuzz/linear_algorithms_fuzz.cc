// The bytes are a file for --linear-algorithms. What is accepted must be written and read again as
// it was, and serve as a table.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "ops/cuda/linear/algorithms_file.h"
#include "quire/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire::ops;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<LinearAlgorithmEntry> entries;
  try {
    entries = parse_linear_algorithms(text, "fuzz");
  } catch (const quire::Error&) {
    return 0;
  }
  if (parse_linear_algorithms(linear_algorithms_text(entries, "fuzz"), "fuzz") != entries) {
    std::abort();
  }
  const LinearAlgorithms table(entries);
  for (const LinearAlgorithmEntry& entry : entries) {
    if (table.find(entry.shape) != entry.algorithm) std::abort();
  }
  return 0;
}
