#include "ops/cuda/attention/decode/sizes.h"

#include <gtest/gtest.h>

namespace quire::ops::cuda {
namespace {

// What one block may have on GPUs of compute capability 8.6, 8.9 and 12.0; 8.0; and 9.0.
constexpr size_t k99KiB = 101376;
constexpr size_t k163KiB = 166912;
constexpr size_t k227KiB = 232448;

constexpr int kBFloat16Bytes = 2;
constexpr int kFp8Bytes = 1;

// Of units with so many heads in tiles of 8.
std::optional<int> depth_of_8(int head_dim, int element_bytes, int heads, size_t shared_bytes) {
  return decode_depth(head_dim, element_bytes, 8, heads, shared_bytes);
}
std::optional<int> depth_of_16(int head_dim, int element_bytes, int heads, size_t shared_bytes) {
  return decode_depth(head_dim, element_bytes, 16, heads, shared_bytes);
}

TEST(DecodeDepth, OneTileOrNoneWithLittleMemory) {
  EXPECT_EQ(depth_of_8(64, kBFloat16Bytes, 8, k99KiB), 2);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 1, k99KiB), 1);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 5, k99KiB), 1);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 6, k99KiB), std::nullopt);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 8, k99KiB), std::nullopt);
  EXPECT_EQ(depth_of_16(128, kBFloat16Bytes, 16, k99KiB), std::nullopt);
  EXPECT_EQ(depth_of_8(256, kBFloat16Bytes, 1, k99KiB), std::nullopt);
  EXPECT_EQ(depth_of_8(128, kFp8Bytes, 8, k99KiB), 1);
  EXPECT_EQ(depth_of_16(128, kFp8Bytes, 16, k99KiB), std::nullopt);
  EXPECT_EQ(depth_of_8(256, kFp8Bytes, 1, k99KiB), 1);
}

TEST(DecodeDepth, HeadsOf256WithMore) {
  EXPECT_EQ(depth_of_8(256, kBFloat16Bytes, 1, k163KiB), 1);
  EXPECT_EQ(depth_of_8(256, kBFloat16Bytes, 2, k163KiB), std::nullopt);
  EXPECT_EQ(depth_of_8(256, kBFloat16Bytes, 8, k163KiB), std::nullopt);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 8, k163KiB), 1);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 2, k163KiB), 2);
  EXPECT_EQ(depth_of_16(128, kBFloat16Bytes, 16, k163KiB), 1);
  EXPECT_EQ(depth_of_8(64, kBFloat16Bytes, 8, k163KiB), 4);
}

TEST(DecodeDepth, EveryShapeWithMost) {
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 2, k227KiB), 3);
  EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, 8, k227KiB), 2);
  EXPECT_EQ(depth_of_16(128, kBFloat16Bytes, 16, k227KiB), 2);
  EXPECT_EQ(depth_of_8(256, kBFloat16Bytes, 8, k227KiB), 1);
  EXPECT_EQ(depth_of_8(64, kBFloat16Bytes, 1, k227KiB), kMaxDepth);
  for (const int head_dim : {64, 96, 128, 256}) {
    for (const int element_bytes : {kFp8Bytes, kBFloat16Bytes}) {
      EXPECT_TRUE(depth_of_8(head_dim, element_bytes, 8, k227KiB)) << head_dim;
      if (head_dim > 128) continue;
      EXPECT_TRUE(depth_of_16(head_dim, element_bytes, 16, k227KiB)) << head_dim;
    }
  }
}

TEST(DecodeDepth, FillsTheMemoryAndNoMore) {
  for (const int heads : {1, 3, 8}) {
    for (int depth = 1; depth <= kMaxDepth; ++depth) {
      const size_t bytes = decode_shared_bytes(128, kBFloat16Bytes, 8, heads, depth);
      EXPECT_EQ(depth_of_8(128, kBFloat16Bytes, heads, bytes), depth);
      const auto with_less = depth_of_8(128, kBFloat16Bytes, heads, bytes - 1);
      EXPECT_EQ(with_less.value_or(0), depth - 1);
    }
  }
}

}  // namespace
}  // namespace quire::ops::cuda
