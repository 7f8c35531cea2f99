#pragma once
// What the blocks of GGUF's quantised types stand for. Each type is integers in groups of values:
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

// The types of kGgufScaleBlock values a block store scales and offsets as small integers, and what
// these are multiplied by. Of one block:
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
  // `count` blocks that follow each other: an integer for each value, and a scale and an offset for
  // each group; nothing is written to `offsets` where the type has none.
  void (*decode)(const std::byte* blocks, int64_t count, int8_t* integers, float* scales,
                 float* offsets) = nullptr;
  // The factors of a block, whose products are its scales and offsets; null where the type has
  // none.
  GgufFactors (*factors)(const std::byte* block) = nullptr;
};

// Of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL and IQ4_XS; null for other types.
const GgufIntegers* gguf_integers(const GgufType& type);

// The values of `count` blocks that follow each other, to out[0..count * type.block_values). Of a
// type that has integers.
void dequantise_gguf(const GgufType& type, const std::byte* blocks, int64_t count, float* out);

// "Q4_0, ... and IQ4_XS", those that gguf_integers() knows.
std::string quantised_gguf_types();

}  // namespace quire
