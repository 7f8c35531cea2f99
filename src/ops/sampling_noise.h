#pragma once
// The noise of sampling: a counter-based generator, so the noise of a token can be computed
// without the others', in any order, on any thread.
//
// A row's key is a 64-bit hash of (seed, index, position). A token's 32 random bits are its id,
// mixed with both halves of the key by the three-round integer hash "triple32" of hash-prospector
// (github.com/skeeto/hash-prospector, which measures its avalanche bias): two tokens of a row
// never have the same bits, and it vectorises with nothing but 32-bit multiplications.
// Thread safety: pure functions.
#include <cmath>
#include <cstdint>

namespace quire::ops {

struct NoiseKey {
  uint32_t low;
  uint32_t high;
};

// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), applied to one word after the other.
inline NoiseKey noise_key(uint64_t seed, uint32_t index, uint64_t position) {
  uint64_t hash = 0;
  for (const uint64_t word : {seed, static_cast<uint64_t>(index), position}) {
    hash += word + 0x9e3779b97f4a7c15u;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
    hash ^= hash >> 31;
  }
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

constexpr uint32_t noise_bits(NoiseKey key, uint32_t token_id) {
  uint32_t x = token_id + key.low;
  x = (x ^ (x >> 17)) * 0xed5ad4bbu;
  x ^= key.high;
  x = (x ^ (x >> 11)) * 0xac4c1b51u;
  x = (x ^ (x >> 15)) * 0x31848babu;
  return x ^ (x >> 14);
}

// Gumbel(0, 1) noise of a token, by inversion: -log(-log(u)) with u = (bits + 0.5) / 2^32.
inline double gumbel_noise(uint32_t bits) {
  return -std::log(-std::log((static_cast<double>(bits) + 0.5) * 0x1p-32));
}

// Above any token's noise: gumbel_noise(2^32 - 1) is 22.874.
inline constexpr double kMaxGumbelNoise = 22.875;

}  // namespace quire::ops
