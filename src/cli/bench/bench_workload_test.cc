#include "cli/bench/bench_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/usage_error.h"

namespace quire::cli {
namespace {

using ::testing::ElementsAre;

constexpr LengthRange kDefault = {.low = 100, .high = 1024};

// What Python prints for nano-vllm's bench.py: random.seed(0), then its two list comprehensions.
TEST(BenchWorkload, IsNanoVllmsByDefault) {
  const BenchWorkload workload = make_bench_workload(256, kDefault, kDefault, 0, 151936);
  EXPECT_EQ(workload.num_prompt_tokens(), 142827);
  EXPECT_EQ(workload.num_output_tokens(), 133966);
  ASSERT_EQ(workload.prompts.size(), 256U);
  const std::vector<int32_t>& first = workload.prompts.front();
  EXPECT_EQ(first.size(), 964U);
  EXPECT_THAT(std::vector<int32_t>(first.begin(), first.begin() + 6),
              ElementsAre(6311, 6890, 663, 4242, 8376, 7961));
  const std::vector<int32_t>& last = workload.prompts.back();
  EXPECT_THAT(std::vector<int32_t>(last.end() - 3, last.end()), ElementsAre(6642, 9046, 1958));
  EXPECT_THAT(
      std::vector<int64_t>(workload.output_lengths.begin(), workload.output_lengths.begin() + 5),
      ElementsAre(845, 312, 607, 843, 500));
}

TEST(BenchWorkload, TakesIdsModuloTheVocabulary) {
  const BenchWorkload large = make_bench_workload(2, kDefault, kDefault, 7, 151936);
  const BenchWorkload small = make_bench_workload(2, kDefault, kDefault, 7, 100);
  ASSERT_EQ(small.prompts[0].size(), large.prompts[0].size());
  for (size_t i = 0; i < small.prompts[0].size(); ++i) {
    EXPECT_EQ(small.prompts[0][i], large.prompts[0][i] % 100);
  }
}

TEST(BenchWorkload, KnowsItsLongestSequence) {
  const BenchWorkload workload = make_bench_workload(3, {5, 5}, {7, 7}, 0, 10);
  EXPECT_EQ(workload.max_sequence_length(), 12);
}

TEST(ParseLengthRange, ReadsLengthsAndRanges) {
  const LengthRange range = parse_length_range("100:1024", "--input-len");
  EXPECT_EQ(range.low, 100);
  EXPECT_EQ(range.high, 1024);
  EXPECT_EQ(parse_length_range("64", "--input-len").high, 64);
}

TEST(ParseLengthRange, RefusesWhatIsNone) {
  for (const char* text : {"", "0", "-1", "5:4", "1:", ":5", "1:2:3", "a", "1:9999999999", "1e3"}) {
    EXPECT_THROW(parse_length_range(text, "--input-len"), UsageError) << text;
  }
}

}  // namespace
}  // namespace quire::cli
