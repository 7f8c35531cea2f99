#pragma once
// Hashes of tokens. Thread safety: free functions without state.
#include <cstdint>
#include <random>

namespace quire::speculative_internal {

// The start of a table's hashes, different for each table, so that no client can choose tokens that
// all hash to one place.
inline uint64_t hash_seed() {
  std::random_device random;
  return (uint64_t{random()} << 32) | random();
}

// Mixes a value into a hash, with splitmix64's finaliser (Steele et al. 2014).
inline uint64_t mix_in(uint64_t hash, uint64_t value) {
  uint64_t x = (hash ^ value) + 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace quire::speculative_internal
