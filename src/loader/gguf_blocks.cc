// Layouts: block_q4_0 and so on of ggml-common.h. In each `d` and `m` (or `dmin`) are float16
// numbers that scale a block, its scales or its minimums. The loops are over neighbouring bytes, so
// that compilers turn them into vector instructions.
#include "loader/gguf_blocks.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/check.h"
#include "core/dtype.h"

namespace quire {
namespace {

constexpr int kSmall = 32;   // values in a block of Q4_0 and its kin
constexpr int kLarge = 256;  // values in a block of the K types

// What is added to a number that has no offset: it leaves zeros their sign.
constexpr float kNoOffset = -0.0f;

// What one block becomes.
struct Decoded {
  int8_t* integers;
  float* scales;
  float* offsets;
};

uint16_t word_at(const uint8_t* bytes) {
  return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}
float half_at(const uint8_t* bytes) {
  Float16 value;
  value.bits = word_at(bytes);
  return static_cast<float>(value);
}

// The low halves of `count` bytes, then the high ones, each less `zero`.
void split_halves(const uint8_t* bytes, int count, int zero, int8_t* out) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<int8_t>((bytes[i] & 15) - zero);
  for (int i = 0; i < count; ++i) out[count + i] = static_cast<int8_t>((bytes[i] >> 4) - zero);
}

void q4_0_block(const uint8_t* block, const Decoded& out) {
  *out.scales = half_at(block);
  split_halves(block + 2, kSmall / 2, 8, out.integers);
}

void q4_1_block(const uint8_t* block, const Decoded& out) {
  *out.scales = half_at(block);
  *out.offsets = half_at(block + 2);
  split_halves(block + 4, kSmall / 2, 0, out.integers);
}

// Bit i of four bytes is the fifth bit of integer i.
void add_fifth_bits(const uint8_t* bits, int8_t* integers) {
  for (int i = 0; i < kSmall; ++i) {
    integers[i] = static_cast<int8_t>(integers[i] + ((bits[i / 8] >> (i % 8) & 1) << 4));
  }
}

void q5_0_block(const uint8_t* block, const Decoded& out) {
  *out.scales = half_at(block);
  split_halves(block + 6, kSmall / 2, 16, out.integers);
  add_fifth_bits(block + 2, out.integers);
}

void q5_1_block(const uint8_t* block, const Decoded& out) {
  *out.scales = half_at(block);
  *out.offsets = half_at(block + 2);
  split_halves(block + 8, kSmall / 2, 0, out.integers);
  add_fifth_bits(block + 4, out.integers);
}

void q8_0_block(const uint8_t* block, const Decoded& out) {
  *out.scales = half_at(block);
  for (int i = 0; i < kSmall; ++i) out.integers[i] = static_cast<int8_t>(block[2 + i]);
}

// Two bits of each of 128 values in 32 bytes: those of values 0 to 31 are the lowest of each byte.
void split_quarters(const uint8_t* bytes, int8_t* out) {
  for (int quarter = 0; quarter < 4; ++quarter, out += 32) {
    for (int i = 0; i < 32; ++i) out[i] = static_cast<int8_t>(bytes[i] >> (2 * quarter) & 3);
  }
}

// The products of a block's factors.
void multiply_out(const GgufFactors& factors, int groups, bool has_offsets, const Decoded& out) {
  for (int j = 0; j < groups; ++j) {
    out.scales[j] = factors.scale * static_cast<float>(factors.scales[j]);
    if (has_offsets) out.offsets[j] = factors.offset * static_cast<float>(factors.offsets[j]);
  }
}

GgufFactors q2_k_factors(const uint8_t* block) {
  GgufFactors factors{.scale = half_at(block + 80), .offset = -half_at(block + 82)};
  for (int j = 0; j < kLarge / 16; ++j) {
    factors.scales[j] = static_cast<int8_t>(block[j] & 15);
    factors.offsets[j] = static_cast<int8_t>(block[j] >> 4);
  }
  return factors;
}

void q2_k_integers(const uint8_t* block, int8_t* out) {
  for (int half = 0; half < 2; ++half) {
    split_quarters(block + 16 + 32 * half, out + 128 * half);
  }
}

// Scale j of 16, six bits each: the low four in bytes 0 to 7, the high two in bytes 8 to 11.
int q3_k_scale(const uint8_t* scales, int j) {
  const int low = scales[j % 8] >> (4 * (j / 8)) & 15;
  const int high = scales[8 + j % 4] >> (2 * (j / 4)) & 3;
  return (low | high << 4) - 32;
}

GgufFactors q3_k_factors(const uint8_t* block) {
  GgufFactors factors{.scale = half_at(block + 108), .offset = kNoOffset};
  for (int j = 0; j < kLarge / 16; ++j) {
    factors.scales[j] = static_cast<int8_t>(q3_k_scale(block + 96, j));
  }
  return factors;
}

void q3_k_integers(const uint8_t* block, int8_t* out) {
  for (int half = 0; half < 2; ++half) {
    split_quarters(block + 32 + 32 * half, out + 128 * half);
  }
  // Bit j of byte i is the third bit of integer i of run j; one that is not set takes 4 away.
  for (int j = 0; j < kLarge / 32; ++j) {
    int8_t* integers = out + 32 * j;
    for (int i = 0; i < 32; ++i) {
      integers[i] = static_cast<int8_t>(integers[i] + ((block[i] >> j & 1) << 2) - 4);
    }
  }
}

// The scales and minimums of the 8 groups of Q4_K and Q5_K: pairs of six bits each in 12 bytes.
GgufFactors k_factors(const uint8_t* block) {
  GgufFactors factors{.scale = half_at(block), .offset = -half_at(block + 2)};
  const uint8_t* pairs = block + 4;
  for (int j = 0; j < kLarge / 32; ++j) {
    int scale = pairs[j] & 63;
    int min = pairs[j + 4] & 63;
    if (j >= 4) {
      scale = (pairs[j + 4] & 15) | (pairs[j - 4] >> 6) << 4;
      min = pairs[j + 4] >> 4 | (pairs[j] >> 6) << 4;
    }
    factors.scales[j] = static_cast<int8_t>(scale);
    factors.offsets[j] = static_cast<int8_t>(min);
  }
  return factors;
}

// Each run of 64 values has 32 bytes, with the low halves first.
void split_k_halves(const uint8_t* bytes, int8_t* out) {
  for (int run = 0; run < kLarge / 64; ++run) {
    split_halves(bytes + 32 * run, 32, 0, out + 64 * run);
  }
}

void q4_k_integers(const uint8_t* block, int8_t* out) {
  split_k_halves(block + 16, out);
}

void q5_k_integers(const uint8_t* block, int8_t* out) {
  split_k_halves(block + 48, out);
  for (int j = 0; j < kLarge / 32; ++j) {
    int8_t* integers = out + 32 * j;
    for (int i = 0; i < 32; ++i) {
      integers[i] = static_cast<int8_t>(integers[i] | (block[16 + i] >> j & 1) << 4);
    }
  }
}

GgufFactors q6_k_factors(const uint8_t* block) {
  GgufFactors factors{.scale = half_at(block + 208), .offset = kNoOffset};
  for (int j = 0; j < kLarge / 16; ++j) factors.scales[j] = static_cast<int8_t>(block[192 + j]);
  return factors;
}

void q6_k_integers(const uint8_t* block, int8_t* out) {
  // Of each half: 64 bytes with the low four bits, 32 with the high two.
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* high = block + 128 + 32 * half;
    int8_t integers[4][32];
    for (int i = 0; i < 32; ++i) {
      const auto integer = [&](int bits, int quarter) {
        return static_cast<int8_t>((bits | (high[i] >> (2 * quarter) & 3) << 4) - 32);
      };
      integers[0][i] = integer(low[i] & 15, 0);
      integers[1][i] = integer(low[32 + i] & 15, 1);
      integers[2][i] = integer(low[i] >> 4, 2);
      integers[3][i] = integer(low[32 + i] >> 4, 3);
    }
    std::copy_n(integers[0], 128, out + 128 * half);
  }
}

// What the numbers of IQ4_NL and IQ4_XS stand for.
constexpr std::array<int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// The low halves of 16 bytes, then the high ones, looked up.
void look_up_halves(const uint8_t* bytes, int8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = kNonLinear[bytes[i] & 15];
    out[16 + i] = kNonLinear[bytes[i] >> 4];
  }
}

void iq4_nl_block(const uint8_t* block, const Decoded& out) {
  *out.scales = half_at(block);
  look_up_halves(block + 2, out.integers);
}

GgufFactors iq4_xs_factors(const uint8_t* block) {
  GgufFactors factors{.scale = half_at(block), .offset = kNoOffset};
  const int high_scales = word_at(block + 2);
  for (int j = 0; j < kLarge / 32; ++j) {
    const int low = block[4 + j / 2] >> (4 * (j % 2)) & 15;
    const int scale = (low | (high_scales >> (2 * j) & 3) << 4) - 32;
    factors.scales[j] = static_cast<int8_t>(scale);
  }
  return factors;
}

void iq4_xs_integers(const uint8_t* block, int8_t* out) {
  for (int j = 0; j < kLarge / 32; ++j) {
    look_up_halves(block + 8 + 16 * j, out + 32 * j);
  }
}

// All blocks of a type, with one function for one of them.
template <void (*kBlock)(const uint8_t*, const Decoded&), int kValues, int kGroup, int kBytes>
void decode_blocks(const std::byte* blocks, int64_t count, int8_t* integers, float* scales,
                   float* offsets) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < count; ++i) {
    kBlock(bytes + i * kBytes, {integers + i * kValues, scales + i * (kValues / kGroup),
                                offsets + i * (kValues / kGroup)});
  }
}

using BlockIntegers = void (*)(const uint8_t* block, int8_t* out);

template <BlockIntegers kIntegers, int kBytes>
void decode_integers(const std::byte* blocks, int64_t count, int8_t* integers) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(blocks);
  for (int64_t i = 0; i < count; ++i) kIntegers(bytes + i * kBytes, integers + i * kLarge);
}

template <GgufFactors (*kFactors)(const uint8_t*), BlockIntegers kIntegers, int kGroup,
          bool kHasOffsets>
void decode_block(const uint8_t* block, const Decoded& out) {
  multiply_out(kFactors(block), kLarge / kGroup, kHasOffsets, out);
  kIntegers(block, out.integers);
}

template <GgufFactors (*kFactors)(const uint8_t*)>
GgufFactors factors_of(const std::byte* block) {
  return kFactors(reinterpret_cast<const uint8_t*>(block));
}

struct TypeIntegers {
  std::string_view type;
  GgufIntegers integers;
};

constexpr bool kUnsigned = true;
constexpr bool kOffsets = true;

// Of a type whose blocks have factors.
template <GgufFactors (*kFactors)(const uint8_t*), BlockIntegers kIntegers, int kGroup, int kBytes,
          bool kHasOffsets>
constexpr GgufIntegers with_factors(int bits, bool is_unsigned) {
  return {
      kGroup,
      bits,
      is_unsigned,
      kHasOffsets,
      decode_blocks<decode_block<kFactors, kIntegers, kGroup, kHasOffsets>, kLarge, kGroup, kBytes>,
      factors_of<kFactors>,
      decode_integers<kIntegers, kBytes>};
}

constexpr TypeIntegers kDecodedTypes[] = {
    {"Q4_0", {32, 4, !kUnsigned, !kOffsets, decode_blocks<q4_0_block, kSmall, 32, 18>, nullptr}},
    {"Q4_1", {32, 4, kUnsigned, kOffsets, decode_blocks<q4_1_block, kSmall, 32, 20>, nullptr}},
    {"Q5_0", {32, 8, !kUnsigned, !kOffsets, decode_blocks<q5_0_block, kSmall, 32, 22>, nullptr}},
    {"Q5_1", {32, 8, !kUnsigned, kOffsets, decode_blocks<q5_1_block, kSmall, 32, 24>, nullptr}},
    {"Q8_0", {32, 8, !kUnsigned, !kOffsets, decode_blocks<q8_0_block, kSmall, 32, 34>, nullptr}},
    {"Q2_K", with_factors<q2_k_factors, q2_k_integers, 16, 84, kOffsets>(4, kUnsigned)},
    {"Q3_K", with_factors<q3_k_factors, q3_k_integers, 16, 110, !kOffsets>(4, !kUnsigned)},
    {"Q4_K", with_factors<k_factors, q4_k_integers, 32, 144, kOffsets>(4, kUnsigned)},
    {"Q5_K", with_factors<k_factors, q5_k_integers, 32, 176, kOffsets>(8, !kUnsigned)},
    {"Q6_K", with_factors<q6_k_factors, q6_k_integers, 16, 210, !kOffsets>(8, !kUnsigned)},
    {"IQ4_NL",
     {32, 8, !kUnsigned, !kOffsets, decode_blocks<iq4_nl_block, kSmall, 32, 18>, nullptr}},
    {"IQ4_XS", with_factors<iq4_xs_factors, iq4_xs_integers, 32, 136, !kOffsets>(8, !kUnsigned)}};

// The values of a group.
void scale_group(const int8_t* integers, int64_t count, float scale, const float* offset,
                 float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = scale * static_cast<float>(integers[i]);
  for (int64_t i = 0; offset != nullptr && i < count; ++i) out[i] += *offset;
}

}  // namespace

const GgufIntegers* gguf_integers(const GgufType& type) {
  const auto* found =
      std::find_if(std::begin(kDecodedTypes), std::end(kDecodedTypes),
                   [&](const TypeIntegers& each) { return each.type == type.name; });
  return found == std::end(kDecodedTypes) ? nullptr : &found->integers;
}

void dequantise_gguf(const GgufType& type, const std::byte* blocks, int64_t count, float* out) {
  const GgufIntegers* of_type = gguf_integers(type);
  check(of_type != nullptr, "the type's blocks are integers");
  const int64_t group = of_type->group_size;
  for (int64_t block = 0; block < count; ++block) {
    int8_t integers[kLarge];
    float scales[kLarge / 16], offsets[kLarge / 16];
    of_type->decode(blocks + block * type.block_bytes, 1, integers, scales, offsets);
    for (int64_t i = 0; i < type.block_values / group; ++i, out += group) {
      scale_group(integers + i * group, group, scales[i],
                  of_type->has_offsets ? offsets + i : nullptr, out);
    }
  }
}

std::string quantised_gguf_types() {
  std::string names;
  for (const TypeIntegers& each : kDecodedTypes) {
    const bool is_last = each.type == std::end(kDecodedTypes)[-1].type;
    names += names.empty() ? "" : is_last ? " and " : ", ";
    names += each.type;
  }
  return names;
}

}  // namespace quire
