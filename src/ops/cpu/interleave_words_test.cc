#include "ops/cpu/interleave_words.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/cpu_features.h"
#include "ops/cpu/dispatch.h"

namespace quire::ops {
namespace {

constexpr int64_t kLanesOfAStep = kPanelLanes;

// One number of 4 bits at a time.
uint32_t with_halves_in_order(uint32_t word) {
  uint32_t result = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t number = word >> (4 * i) & 15;
    result |= number << (i < 4 ? 8 * i : 8 * (i - 4) + 4);
  }
  return result;
}

struct InterleavedWords {
  int rows;
  int64_t words;
  int64_t group_words;
  int64_t header_words;  // before the steps of each group
  bool orders_halves;
  uint32_t flip;
  int64_t misaligned_bytes = 0;
};

// Word by word; everything else keeps its value.
void expect_interleaved(const InterleavedWords& test, const Kernels& kernels) {
  std::mt19937 random(5);
  const int64_t stride = test.words + 3;
  std::vector<uint32_t> in(static_cast<size_t>(stride * test.rows));
  for (uint32_t& word : in) word = random();
  const int64_t groups = (test.words + test.group_words - 1) / test.group_words;
  const int64_t group_words = test.header_words + test.group_words * kLanesOfAStep;
  std::vector<uint32_t> expected(static_cast<size_t>(groups * group_words));
  for (uint32_t& word : expected) word = random();
  const size_t bytes = expected.size() * sizeof(uint32_t);
  // Lines begin at multiples of 64 bytes there.
  std::vector<std::byte> memory(bytes + 128);
  auto* const out =
      memory.data() + 64 - reinterpret_cast<uintptr_t>(memory.data()) % 64 + test.misaligned_bytes;
  std::memcpy(out, expected.data(), bytes);
  for (int64_t row = 0; row < test.rows; ++row) {
    for (int64_t word = 0; word < test.words; ++word) {
      const uint32_t value = in[static_cast<size_t>(row * stride + word)];
      const int64_t at = word / test.group_words * group_words + test.header_words +
                         word % test.group_words * kLanesOfAStep + row;
      expected[static_cast<size_t>(at)] =
          (test.orders_halves ? with_halves_in_order(value) : value) ^ test.flip;
    }
  }
  WordRows rows =
      word_rows(in.data(), stride * 4, test.rows, test.words, out + test.header_words * 4);
  rows.group_words = test.group_words;
  rows.group_bytes = group_words * 4;
  rows.flip = test.flip;
  rows.orders_halves = test.orders_halves;
  kernels.interleave(rows);
  std::vector<uint32_t> written(expected.size());
  std::memcpy(written.data(), out, bytes);
  EXPECT_EQ(written, expected) << test.rows << " rows of " << test.words << " words in groups of "
                               << test.group_words;
}

TEST(InterleaveWords, PutsEachWordInItsLaneWithEveryInstructionSet) {
  for (const Isa isa : supported_isas()) {
    for (const int rows : {1, 3, 16, 17, 37, 64}) {
      for (const int64_t words : {1, 4, 15, 16, 48, 83}) {
        for (const bool orders_halves : {false, true}) {
          expect_interleaved({rows, words, words, 0, orders_halves, 0}, kernels_for(isa));
          expect_interleaved({rows, words, words, 0, orders_halves, 0x80818283u, 4},
                             kernels_for(isa));
        }
      }
    }
  }
}

TEST(InterleaveWords, LeavesRoomBetweenGroups) {
  for (const Isa isa : supported_isas()) {
    for (const int64_t group_words : {1, 2, 4, 8, 16, 32}) {
      for (const int rows : {5, 64}) {
        expect_interleaved({rows, 64, group_words, 64, true, 0}, kernels_for(isa));
        expect_interleaved({rows, 64, group_words, 32, false, 0x80808080u}, kernels_for(isa));
        expect_interleaved({rows, 40, group_words, 16, false, 0}, kernels_for(isa));
      }
    }
  }
}

TEST(InterleaveWords, AsksForARowOfPanelsThatIsSmallEnough) {
  std::vector<uint32_t> in(256 * 16);
  const WordRows rows = word_rows(in.data(), 64, 64, 16, nullptr, 192);
  EXPECT_EQ(rows.next, in.data() + 64 * 16);
  EXPECT_EQ(rows.next_bytes, 64 * 64);
  EXPECT_EQ(word_rows(in.data(), 64, 64, 16, nullptr, 10).next_bytes, 640);
  EXPECT_EQ(word_rows(in.data(), 64, 64, 16, nullptr).next, nullptr);
  EXPECT_EQ(word_rows(in.data(), 1 << 20, 64, 16, nullptr, 192).next, nullptr);
}

}  // namespace
}  // namespace quire::ops
