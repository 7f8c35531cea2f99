#pragma once
// The values of blocks of GGUF's quantised types. Each type is integers in groups of values:
//
//   value = scale * integer            or, for types with minimums,
//   value = scale * integer + offset
//
// in float32, rounded after each operation; that is gguf-py's dequantize(), bit for bit.
//
// Thread safety: free functions without state.
#include <cstddef>
#include <cstdint>
#include <string>

#include "loader/gguf_types.h"

namespace quire {

// Factors of one block, for types with kGgufScaleBlock values a block: they store scales and
// offsets as small integers, which are multiplied by a number of the block.
struct GgufFactors {
  float scale = 0;
  float offset = 0;
  int8_t scales[16] = {};   // of the block's groups
  int8_t offsets[16] = {};  // zeros where the type has none
};
inline constexpr int64_t kGgufScaleBlock = 256;

struct GgufIntegers {
  int64_t group_size = 32;  // values that share a scale and an offset: 16 or 32
  int bits = 8;             // 4: integers from -8 to 7, or 0 to 15 where they are unsigned
  bool is_unsigned = false;
  bool has_offsets = false;
  // Decodes `count` consecutive blocks: an integer for each value, and a scale and an offset for
  // each group. Writes nothing to `offsets` where the type has none.
  void (*decode)(const std::byte* blocks, int64_t count, int8_t* integers, float* scales,
                 float* offsets) = nullptr;
  // For types whose blocks have factors, else null: those of a block, whose products are its scales
  // and offsets; and decode()'s integers alone.
  GgufFactors (*factors)(const std::byte* block) = nullptr;
  void (*decode_integers)(const std::byte* blocks, int64_t count, int8_t* integers) = nullptr;
};

// Of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL and IQ4_XS; null for other types.
const GgufIntegers* gguf_integers(const GgufType& type);

// Writes the values of `count` consecutive blocks to out[0..count * type.block_values). Only for
// types that have integers.
void dequantise_gguf(const GgufType& type, const std::byte* blocks, int64_t count, float* out);

// "Q4_0, ... and IQ4_XS": the types that gguf_integers() knows.
std::string quantised_gguf_types();

}  // namespace quire
