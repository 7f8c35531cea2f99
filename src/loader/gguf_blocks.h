#pragma once
// What the blocks of GGUF's quantised types stand for: the reference that faster forms are compared
// with. Values are those of gguf-py's dequantize(), bit for bit.
//
// Thread safety: free functions without state.
#include <cstddef>
#include <cstdint>
#include <string>

#include "loader/gguf_types.h"

namespace quire {

// `count` blocks that follow each other to float32, out[0..count * type.block_values).
using GgufDequantise = void (*)(const std::byte* blocks, int64_t count, float* out);

// Of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL and IQ4_XS; null for other types.
GgufDequantise gguf_dequantiser(const GgufType& type);

// "Q4_0, ... and IQ4_XS", those that gguf_dequantiser() knows.
std::string dequantised_gguf_types();

}  // namespace quire
