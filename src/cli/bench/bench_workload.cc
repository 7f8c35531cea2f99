#include "cli/bench/bench_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "base/python_random.h"
#include "cli/usage_error.h"

namespace quire::cli {
namespace {

constexpr int64_t kMaxLength = int64_t{1} << 20;

}  // namespace

LengthRange parse_length_range(const std::string& text, const std::string& option) {
  LengthRange range;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, range.low);
  range.high = range.low;
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == ':') {
    parsed = std::from_chars(parsed.ptr + 1, end, range.high);
  }
  if (parsed.ec != std::errc() || parsed.ptr != end || range.low < 1 || range.high < range.low ||
      range.high > kMaxLength) {
    throw UsageError(
        fmt::format("{}: expected a length or a range A:B with 1 <= A <= B <= {}, got '{}'", option,
                    kMaxLength, text));
  }
  return range;
}

int64_t BenchWorkload::num_prompt_tokens() const {
  int64_t sum = 0;
  for (const auto& prompt : prompts) sum += static_cast<int64_t>(prompt.size());
  return sum;
}

int64_t BenchWorkload::num_output_tokens() const {
  return std::accumulate(output_lengths.begin(), output_lengths.end(), int64_t{0});
}

int64_t BenchWorkload::max_sequence_length() const {
  int64_t longest = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    longest = std::max(longest, static_cast<int64_t>(prompts[i].size()) + output_lengths[i]);
  }
  return longest;
}

BenchWorkload make_bench_workload(int64_t num_seqs, LengthRange input, LengthRange output,
                                  uint64_t seed, int64_t vocab_size) {
  PythonRandom random(seed);
  BenchWorkload workload;
  for (int64_t i = 0; i < num_seqs; ++i) {
    std::vector<int32_t> prompt(static_cast<size_t>(random.randint(input.low, input.high)));
    for (int32_t& id : prompt) {
      id = static_cast<int32_t>(random.randint(0, kMaxDrawnId) % vocab_size);
    }
    workload.prompts.push_back(std::move(prompt));
  }
  for (int64_t i = 0; i < num_seqs; ++i) {
    workload.output_lengths.push_back(random.randint(output.low, output.high));
  }
  return workload;
}

}  // namespace quire::cli
