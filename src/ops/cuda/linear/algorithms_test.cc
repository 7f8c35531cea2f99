#include "ops/cuda/linear/algorithms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace quire::ops {
namespace {

constexpr GpuKind kGpu = {90, 1};  // not in the source's table

LinearShape shape(int64_t rows, int64_t n = 4096, int64_t k = 1024) {
  return {kGpu, DType::kBFloat16, DType::kBFloat16, n, k, rows};
}

LinearAlgorithm algorithm(int32_t id) {
  return {.id = id};
}

TEST(LinearAlgorithms, WhatNobodyNamesIsLeftToTheHeuristics) {
  const LinearAlgorithms table{std::vector<LinearAlgorithmEntry>()};
  EXPECT_EQ(table.find(shape(64)), std::nullopt);
}

TEST(LinearAlgorithms, AnEntryServesTheRowsDownToTheOneBefore) {
  const LinearAlgorithms table(
      {{shape(96), algorithm(2)}, {shape(64), algorithm(1)}, {shape(128), algorithm(3)}});
  EXPECT_EQ(table.find(shape(64)), algorithm(1));
  EXPECT_EQ(table.find(shape(65)), algorithm(2));
  EXPECT_EQ(table.find(shape(96)), algorithm(2));
  EXPECT_EQ(table.find(shape(97)), algorithm(3));
  EXPECT_EQ(table.find(shape(128)), algorithm(3));
  EXPECT_EQ(table.find(shape(129)), std::nullopt);
}

TEST(LinearAlgorithms, AnEntryServesNoRowsBelowItsHalf) {
  const LinearAlgorithms table({{shape(64), algorithm(1)}, {shape(4096), algorithm(2)}});
  EXPECT_EQ(table.find(shape(33)), algorithm(1));
  EXPECT_EQ(table.find(shape(32)), std::nullopt);
  EXPECT_EQ(table.find(shape(65)), std::nullopt);
  EXPECT_EQ(table.find(shape(2048)), std::nullopt);
  EXPECT_EQ(table.find(shape(2049)), algorithm(2));
}

TEST(LinearAlgorithms, AnEntryWithoutAnAlgorithmLeavesItsRowsToTheHeuristics) {
  const LinearAlgorithms table({{shape(64), std::nullopt}, {shape(96), algorithm(2)}});
  EXPECT_EQ(table.find(shape(60)), std::nullopt);
  EXPECT_EQ(table.find(shape(80)), algorithm(2));
}

TEST(LinearAlgorithms, NothingIsSaidOfOtherMatricesTypesAndGpus) {
  const LinearAlgorithms table({{shape(64), algorithm(1)}});
  EXPECT_EQ(table.find(shape(64, 4095)), std::nullopt);
  EXPECT_EQ(table.find(shape(64, 4097)), std::nullopt);
  EXPECT_EQ(table.find(shape(64, 4096, 1032)), std::nullopt);
  LinearShape other = shape(64);
  other.dtype = DType::kFloat16;
  EXPECT_EQ(table.find(other), std::nullopt);
  other = shape(64);
  other.out_dtype = DType::kFloat32;
  EXPECT_EQ(table.find(other), std::nullopt);
  other = shape(64);
  other.gpu.num_multiprocessors = 114;
  EXPECT_EQ(table.find(other), std::nullopt);
  other = shape(64);
  other.gpu.compute_capability = 100;
  EXPECT_EQ(table.find(other), std::nullopt);
}

TEST(LinearAlgorithms, TheOrderOfTheEntriesDoesNotMatter) {
  std::vector<LinearAlgorithmEntry> entries;
  for (int i = 1; i <= 24; ++i) {
    entries.push_back({shape(32 * (i % 5 + 1), 8 * (i / 5 + 1)), algorithm(i)});
  }
  const LinearAlgorithms table(entries);
  std::reverse(entries.begin(), entries.end());
  const LinearAlgorithms reversed(entries);
  EXPECT_THAT(table.entries(), testing::ElementsAreArray(reversed.entries()));
  for (const LinearAlgorithmEntry& entry : entries) {
    EXPECT_EQ(table.find(entry.shape), entry.algorithm);
  }
}

TEST(LinearAlgorithmsDeathTest, AShapeIsThereOnce) {
  EXPECT_DEATH(LinearAlgorithms({{shape(64), algorithm(1)}, {shape(64), algorithm(2)}}), "once");
}

TEST(MergeLinearAlgorithms, KeepsWhatIsNotNewer) {
  const std::vector<LinearAlgorithmEntry> older = {
      {shape(128), algorithm(2)}, {shape(64), algorithm(1)}, {shape(64, 1024), algorithm(3)}};
  const std::vector<LinearAlgorithmEntry> newer = {
      {shape(128), algorithm(4)}, {shape(256), std::nullopt}, {shape(64, 2048), algorithm(5)}};
  EXPECT_THAT(merge_linear_algorithms(older, newer),
              testing::ElementsAre(LinearAlgorithmEntry{shape(64, 1024), algorithm(3)},
                                   LinearAlgorithmEntry{shape(64, 2048), algorithm(5)},
                                   LinearAlgorithmEntry{shape(64), algorithm(1)},
                                   LinearAlgorithmEntry{shape(128), algorithm(4)},
                                   LinearAlgorithmEntry{shape(256), std::nullopt}));
  EXPECT_THAT(merge_linear_algorithms({}, {}), testing::IsEmpty());
}

// What a given file has no entry of is looked up in the source's table.
TEST(LinearAlgorithms, TheSourcesTableServesWhatNobodyElseDoes) {
  const auto built_in = built_in_linear_algorithms();
  const LinearAlgorithms table;
  EXPECT_EQ(table.entries().size(), built_in.size());
  for (const LinearAlgorithmEntry& entry : built_in) {
    EXPECT_EQ(table.find(entry.shape), entry.algorithm);
    EXPECT_TRUE(!entry.algorithm || sums_in_float32(*entry.algorithm));
    EXPECT_EQ(LinearAlgorithms({{entry.shape, std::nullopt}}).find(entry.shape), std::nullopt);
    LinearShape above = entry.shape;
    above.rows = 1 << 30;
    EXPECT_EQ(LinearAlgorithms({{above, std::nullopt}}).find(entry.shape), entry.algorithm);
  }
}

}  // namespace
}  // namespace quire::ops
