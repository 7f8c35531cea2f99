#pragma once
// The types of JSON values.
#include <cstdint>

namespace quire::grammar {

// What a JSON value may be, as bits.
enum TypeBits : uint8_t {
  kNullType = 1,
  kFalseType = 2,
  kTrueType = 4,
  kNumberType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAllTypes = 127,
};

}  // namespace quire::grammar
