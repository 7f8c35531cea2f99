#pragma once
// The element types that a GGUF file's tensors may have.
//
// Format: ggml's enum ggml_type and its block structures. A type stores a row as blocks of a fixed
// number of values and of bytes; the dense types have blocks of one value.
// Some only have a name here, for messages: ggml's types of activations (Q8_1, Q8_K) among them.
// Thread safety: free functions without state.
#include <cstdint>
#include <string_view>

namespace quire {

struct GgufType {
  uint32_t id = 0;        // as the file spells it
  std::string_view name;  // as tools and quire's messages spell it: "Q4_K", "F32"
  int64_t block_values = 1;
  int64_t block_bytes = 1;

  bool operator==(const GgufType&) const = default;
};

// Null where there is no type of that number or name, or one that was removed from the format.
const GgufType* find_gguf_type(uint32_t id);
const GgufType* find_gguf_type(std::string_view name);

}  // namespace quire
