#include "base/python_random.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/check.h"

namespace quire {
namespace {

// std::mt19937 asks a seed sequence for its whole state; this one answers with what the
// reference implementation's init_by_array(key) leaves there.
class InitByArray {
 public:
  using result_type = uint32_t;

  explicit InitByArray(std::vector<uint32_t> key) : key_(std::move(key)) {}

  template <typename Iterator>
  void generate(Iterator begin, Iterator end) const {
    constexpr uint32_t kSize = std::mt19937::state_size;
    check(end - begin == kSize, "std::mt19937 asks for its 624 words of state");
    std::vector<uint32_t> state(kSize);
    state[0] = 19650218U;
    for (uint32_t i = 1; i < kSize; ++i) {
      state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
    }
    const auto key_size = static_cast<uint32_t>(key_.size());
    uint32_t i = 1;
    const auto next_word = [&] {
      if (++i >= kSize) {
        state[0] = state[kSize - 1];
        i = 1;
      }
    };
    for (uint32_t k = 0, j = 0; k < std::max(kSize, key_size); ++k, j = (j + 1) % key_size) {
      state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1664525U)) + key_[j] + j;
      next_word();
    }
    for (uint32_t k = 0; k < kSize - 1; ++k) {
      state[i] = (state[i] ^ ((state[i - 1] ^ (state[i - 1] >> 30)) * 1566083941U)) - i;
      next_word();
    }
    state[0] = 0x80000000U;
    std::copy(state.begin(), state.end(), begin);
  }

 private:
  std::vector<uint32_t> key_;
};

std::mt19937 seeded(uint64_t seed) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32 != 0) key.push_back(static_cast<uint32_t>(seed >> 32));
  InitByArray sequence(std::move(key));
  return std::mt19937(sequence);
}

}  // namespace

PythonRandom::PythonRandom(uint64_t seed) : generator_(seeded(seed)) {}

uint64_t PythonRandom::getrandbits(int bits) {
  check(bits >= 1 && bits <= 64, "getrandbits draws 1 to 64 bits");
  if (bits <= 32) return generator_() >> (32 - bits);
  const uint64_t low = generator_();
  const uint64_t high = generator_() >> (64 - bits);
  return high << 32 | low;
}

int64_t PythonRandom::randint(int64_t low, int64_t high) {
  check(low <= high, "randint needs low <= high");
  const uint64_t count = static_cast<uint64_t>(high) - static_cast<uint64_t>(low) + 1;
  check(count != 0, "randint needs fewer than 2^64 values");
  const int bits = std::bit_width(count);
  uint64_t value = getrandbits(bits);
  while (value >= count) value = getrandbits(bits);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + value);
}

}  // namespace quire
