// Layouts: block_q4_0 and so on of ggml-common.h. In each `d` and `m` (or `dmin`) are float16
// numbers that scale a block, its scales or its minimums; a "half" is the 16 or 32 values that
// share the bytes of a run, first the low bits, then the high ones. The order of multiplications is
// part of the format: it decides how results are rounded.
#include "loader/gguf_blocks.h"

#include <array>
#include <iterator>

#include "core/dtype.h"

namespace quire {
namespace {

constexpr int kSmall = 32;   // values in a block of Q4_0 and its kin
constexpr int kLarge = 256;  // values in a block of the K types

uint8_t byte_at(const std::byte* block, int i) {
  return std::to_integer<uint8_t>(block[i]);
}
int8_t signed_at(const std::byte* block, int i) {
  return static_cast<int8_t>(byte_at(block, i));
}
uint16_t word_at(const std::byte* block, int i) {
  return static_cast<uint16_t>(byte_at(block, i) | byte_at(block, i + 1) << 8);
}
float half_at(const std::byte* block, int i) {
  Float16 value;
  value.bits = word_at(block, i);
  return static_cast<float>(value);
}

// Nibble i of a run of 32 values in 16 bytes: the low ones of all bytes, then the high ones.
int nibble(const std::byte* run, int i) {
  return i < 16 ? byte_at(run, i) & 15 : byte_at(run, i - 16) >> 4;
}

void q4_0_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

void q4_1_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float m = half_at(block, 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

// Bit i of 32 in four bytes, as the fifth bit of a value.
int fifth_bit(const std::byte* bits, int i) {
  return (byte_at(bits, i / 8) >> (i % 8) & 1) << 4;
}

void q5_0_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) {
    const int value = nibble(block + 6, i) | fifth_bit(block + 2, i);
    out[i] = d * static_cast<float>(value - 16);
  }
}

void q5_1_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float m = half_at(block, 2);
  for (int i = 0; i < kSmall; ++i) {
    const int value = nibble(block + 8, i) | fifth_bit(block + 4, i);
    out[i] = d * static_cast<float>(value) + m;
  }
}

void q8_0_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) out[i] = static_cast<float>(signed_at(block + 2, i)) * d;
}

// Two bits of each of 128 values in 32 bytes: value i is in byte i % 32, at bits 2 * (i / 32).
int two_bits(const std::byte* run, int i) {
  return byte_at(run, i % 32) >> (2 * (i / 32)) & 3;
}

void q2_k_block(const std::byte* block, float* out) {
  const float d = half_at(block, 80);
  const float dmin = half_at(block, 82);
  for (int j = 0; j < kLarge / 16; ++j) {
    const uint8_t group = byte_at(block, j);
    const float scale = d * static_cast<float>(group & 15);
    const float min = dmin * static_cast<float>(group >> 4);
    const std::byte* run = block + 16 + j / 8 * 32;
    for (int i = 0; i < 16; ++i) {
      out[16 * j + i] = scale * static_cast<float>(two_bits(run, 16 * (j % 8) + i)) - min;
    }
  }
}

// Scale j of 16, six bits each: the low four in bytes 0 to 7, the high two in bytes 8 to 11.
int q3_k_scale(const std::byte* scales, int j) {
  const int low = byte_at(scales, j % 8) >> (4 * (j / 8)) & 15;
  const int high = byte_at(scales, 8 + j % 4) >> (2 * (j / 4)) & 3;
  return (low | high << 4) - 32;
}

void q3_k_block(const std::byte* block, float* out) {
  const float d = half_at(block, 108);
  for (int j = 0; j < kLarge / 16; ++j) {
    const float scale = d * static_cast<float>(q3_k_scale(block + 96, j));
    const std::byte* run = block + 32 + j / 8 * 32;
    const std::byte* high_bits = block + 16 * (j % 2);
    for (int i = 0; i < 16; ++i) {
      // A high bit that is not set takes 4 away.
      const int high = (byte_at(high_bits, i) >> (j / 2) & 1) << 2;
      const int value = two_bits(run, 16 * (j % 8) + i) + high - 4;
      out[16 * j + i] = scale * static_cast<float>(value);
    }
  }
}

struct ScaleAndMin {
  int scale = 0;
  int min = 0;
};

// Number j of the 8 pairs of Q4_K and Q5_K, six bits each in 12 bytes.
ScaleAndMin k_scale(const std::byte* scales, int j) {
  if (j < 4) return {byte_at(scales, j) & 63, byte_at(scales, j + 4) & 63};
  const int low = byte_at(scales, j + 4);
  return {(low & 15) | (byte_at(scales, j - 4) >> 6) << 4, low >> 4 | (byte_at(scales, j) >> 6)
                                                                          << 4};
}

// Nibble i of 256: each run of 64 values has 32 bytes, with the low nibbles first.
int k_nibble(const std::byte* numbers, int i) {
  const uint8_t pair = byte_at(numbers, i / 64 * 32 + i % 32);
  return i % 64 < 32 ? pair & 15 : pair >> 4;
}

// Groups of 32 numbers, each with a scale and a minimum: number(j, i) is that at i, of group j.
template <typename Number>
void k_groups(const std::byte* block, Number number, float* out) {
  const float d = half_at(block, 0);
  const float dmin = half_at(block, 2);
  for (int j = 0; j < kLarge / 32; ++j) {
    const ScaleAndMin group = k_scale(block + 4, j);
    const float scale = d * static_cast<float>(group.scale);
    const float min = dmin * static_cast<float>(group.min);
    for (int i = 32 * j; i < 32 * j + 32; ++i) {
      out[i] = scale * static_cast<float>(number(j, i)) - min;
    }
  }
}

void q4_k_block(const std::byte* block, float* out) {
  k_groups(
      block, [block](int, int i) { return k_nibble(block + 16, i); }, out);
}

void q5_k_block(const std::byte* block, float* out) {
  const auto number = [block](int j, int i) {
    const int high = byte_at(block + 16, i % 32) >> j & 1;
    return k_nibble(block + 48, i) | high << 4;
  };
  k_groups(block, number, out);
}

void q6_k_block(const std::byte* block, float* out) {
  const float d = half_at(block, 208);
  for (int j = 0; j < kLarge / 16; ++j) {
    const float scale = d * static_cast<float>(signed_at(block + 192, j));
    const std::byte* low_bits = block + j / 8 * 64 + 16 * (j % 4);
    const std::byte* high_bits = block + 128 + j / 8 * 32;
    const int shift = j % 8 < 4 ? 0 : 4;
    for (int i = 0; i < 16; ++i) {
      const int low = byte_at(low_bits, i) >> shift & 15;
      const int high = two_bits(high_bits, 16 * (j % 8) + i);
      out[16 * j + i] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

// What the numbers of IQ4_NL and IQ4_XS stand for.
constexpr std::array<int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

float non_linear(int number) {
  return static_cast<float>(kNonLinear[static_cast<size_t>(number)]);
}

void iq4_nl_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < kSmall; ++i) out[i] = d * non_linear(nibble(block + 2, i));
}

void iq4_xs_block(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const int high_scales = word_at(block, 2);
  for (int j = 0; j < kLarge / 32; ++j) {
    const int low = byte_at(block + 4, j / 2) >> (4 * (j % 2)) & 15;
    const int scale = (low | (high_scales >> (2 * j) & 3) << 4) - 32;
    const std::byte* run = block + 8 + 16 * j;
    for (int i = 0; i < 32; ++i) {
      out[32 * j + i] = d * static_cast<float>(scale) * non_linear(nibble(run, i));
    }
  }
}

// All blocks of a type, with one function for one of them.
template <void (*kBlock)(const std::byte*, float*), int kValues, int kBytes>
void each_block(const std::byte* blocks, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) kBlock(blocks + i * kBytes, out + i * kValues);
}

struct Dequantiser {
  std::string_view type;
  GgufDequantise run;
};

constexpr Dequantiser kDequantisers[] = {{"Q4_0", each_block<q4_0_block, kSmall, 18>},
                                         {"Q4_1", each_block<q4_1_block, kSmall, 20>},
                                         {"Q5_0", each_block<q5_0_block, kSmall, 22>},
                                         {"Q5_1", each_block<q5_1_block, kSmall, 24>},
                                         {"Q8_0", each_block<q8_0_block, kSmall, 34>},
                                         {"Q2_K", each_block<q2_k_block, kLarge, 84>},
                                         {"Q3_K", each_block<q3_k_block, kLarge, 110>},
                                         {"Q4_K", each_block<q4_k_block, kLarge, 144>},
                                         {"Q5_K", each_block<q5_k_block, kLarge, 176>},
                                         {"Q6_K", each_block<q6_k_block, kLarge, 210>},
                                         {"IQ4_NL", each_block<iq4_nl_block, kSmall, 18>},
                                         {"IQ4_XS", each_block<iq4_xs_block, kLarge, 136>}};

}  // namespace

GgufDequantise gguf_dequantiser(const GgufType& type) {
  for (const Dequantiser& dequantiser : kDequantisers) {
    if (dequantiser.type == type.name) return dequantiser.run;
  }
  return nullptr;
}

std::string dequantised_gguf_types() {
  std::string names;
  for (const Dequantiser& dequantiser : kDequantisers) {
    const bool is_last = dequantiser.type == std::end(kDequantisers)[-1].type;
    names += names.empty() ? "" : is_last ? " and " : ", ";
    names += dequantiser.type;
  }
  return names;
}

}  // namespace quire
