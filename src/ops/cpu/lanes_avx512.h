#pragma once
// Which lanes of a panel's registers exist. Only for files compiled for AVX-512 (see
// ops/cpu/kernels.h): everything here is local to the file that includes it.
#include <immintrin.h>

namespace quire::ops::avx512 {
namespace {

// Of the panel's register `part`, 16 lanes each, where `cols` lanes of the panel exist.
[[maybe_unused]] inline __mmask16 lanes_of(int cols, int part) {
  const int lanes = cols - part * 16;
  return lanes >= 16 ? __mmask16(0xffff) : lanes <= 0 ? __mmask16(0) : __mmask16((1u << lanes) - 1);
}

}  // namespace
}  // namespace quire::ops::avx512
