#pragma once
// Element types, and the floating point formats of 16 and 8 bits as storage types.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quire {

enum class DType : uint8_t {
  kFloat32,
  kBFloat16,
  kFloat16,
  kInt32,
  kInt64,
  kUInt8,
  kInt8,
  kFloat8E4M3,
  kFloat8E5M2
};

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kInt64:
      return 8;
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kBFloat16:
    case DType::kFloat16:
    case DType::kFloat8E4M3:
    case DType::kFloat8E5M2:
      return true;
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8:
    case DType::kInt8:
      return false;
  }
  return false;
}

constexpr bool is_float8(DType dtype) {
  return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2;
}

// Hugging Face's spelling: "float32", "bfloat16", "float16", "int32", "int64", "uint8", "int8"; for
// float8 vLLM's names of a KV cache's element: "fp8" (e4m3) and "fp8_e5m2".
std::string_view name_of(DType dtype);
std::optional<DType> dtype_from_name(std::string_view name);

// The upper half of a float32. Conversion from float rounds to nearest even and keeps NaN a NaN.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

// OCP float8 e4m3: a sign, four bits of exponent with bias 7, three of fraction. There are no
// infinities, and one NaN of each sign; the largest number is 448.
struct Float8E4M3 {
  uint8_t bits = 0;

  Float8E4M3() = default;
  // Rounds to nearest even; larger values than 448 become 448.
  explicit Float8E4M3(float value);
  explicit operator float() const;
};

// OCP float8 e5m2, the upper byte of a float16: a sign, five bits of exponent with bias 15, two of
// fraction. The largest number is 57344.
struct Float8E5M2 {
  uint8_t bits = 0;

  Float8E5M2() = default;
  // Rounds to nearest even; larger values than 57344 become 57344, as infinity does.
  explicit Float8E5M2(float value);
  explicit operator float() const;
};

}  // namespace quire
