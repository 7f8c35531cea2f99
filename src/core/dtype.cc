#include "core/dtype.h"

#include <array>
#include <limits>
#include <utility>

namespace quire {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 9> kNames{{
    {DType::kFloat32, "float32"},
    {DType::kBFloat16, "bfloat16"},
    {DType::kFloat16, "float16"},
    {DType::kInt32, "int32"},
    {DType::kInt64, "int64"},
    {DType::kUInt8, "uint8"},
    {DType::kInt8, "int8"},
    {DType::kFloat8E4M3, "fp8"},
    {DType::kFloat8E5M2, "fp8_e5m2"},
}};

}  // namespace

std::string_view name_of(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "unknown";
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const auto& [value, spelled] : kNames) {
    if (spelled == name) return value;
  }
  return std::nullopt;
}

Float16::Float16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {  // rounds to 2^16 or more: infinity
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {
    // Below 2^-14 the result is subnormal: adding 0.5 lets the FPU round at bit 2^-24, and the
    // rounded significand is what the addition left in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  } else {
    const uint32_t odd = (magnitude >> 13) & 1u;
    bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
}

Float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

namespace {

constexpr uint8_t kFloat8Nan = 0x7f;

constexpr std::array<float, 256> make_float8_values() {
  std::array<float, 256> values{};
  for (uint32_t bits = 0; bits < kFloat8Nan; ++bits) {
    const uint32_t exponent = bits >> 3;
    const uint32_t fraction = bits & 7u;
    const float value = exponent == 0
                            ? static_cast<float>(fraction) * 0x1p-9f
                            : std::bit_cast<float>(((exponent + 120) << 23) | (fraction << 20));
    values[bits] = value;
    values[bits | 0x80u] = -value;
  }
  values[kFloat8Nan] = std::numeric_limits<float>::quiet_NaN();
  values[kFloat8Nan | 0x80u] = -std::numeric_limits<float>::quiet_NaN();
  return values;
}

constexpr std::array<float, 256> kFloat8Values = make_float8_values();

}  // namespace

Float8E4M3::Float8E4M3(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 24) & 0x80u;
  const uint32_t magnitude = u & 0x7fffffffu;
  constexpr uint32_t kLargest = 0x43e00000u;  // 448
  constexpr uint32_t kNormal = 0x3c800000u;   // 2^-6, the least with a full fraction
  if (magnitude > 0x7f800000u) {
    bits = static_cast<uint8_t>(sign | kFloat8Nan);
  } else if (magnitude >= kLargest) {
    bits = static_cast<uint8_t>(sign | (kFloat8Nan - 1u));
  } else if (magnitude < kNormal) {
    // Adding 2^14 lets the FPU round at bit 2^-9, and leaves the rounded fraction in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    bits = static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x46800000u));
  } else {
    const uint32_t odd = (magnitude >> 20) & 1u;
    bits = static_cast<uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + odd) >> 20));
  }
}

Float8E4M3::operator float() const {
  return kFloat8Values[bits];
}

Float8E5M2::Float8E5M2(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 24) & 0x80u;
  const uint32_t magnitude = u & 0x7fffffffu;
  constexpr uint32_t kLargest = 0x47600000u;  // 57344
  constexpr uint32_t kNormal = 0x38800000u;   // 2^-14, the least with a full fraction
  constexpr uint32_t kLargestBits = 0x7b;
  constexpr uint32_t kNan = 0x7f;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<uint8_t>(sign | kNan);
  } else if (magnitude >= kLargest) {
    bits = static_cast<uint8_t>(sign | kLargestBits);
  } else if (magnitude < kNormal) {
    // Adding 2^7 lets the FPU round at bit 2^-16, and leaves the rounded fraction in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p7f;
    bits = static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x43000000u));
  } else {
    const uint32_t odd = (magnitude >> 21) & 1u;
    bits = static_cast<uint8_t>(sign | ((magnitude - 0x38000000u + 0xfffffu + odd) >> 21));
  }
}

Float8E5M2::operator float() const {
  Float16 half;
  half.bits = static_cast<uint16_t>(bits << 8);
  return static_cast<float>(half);
}

}  // namespace quire
