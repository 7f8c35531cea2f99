#pragma once
// The work of a benchmark: prompts of random tokens, and how many tokens to generate for each.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/structured_output.h"

namespace quire::cli {

// Inclusive bounds of a length.
struct LengthRange {
  int64_t low = 0;
  int64_t high = 0;
};

// "100:1024", or "512" for both. Throws UsageError naming `option` unless 1 <= low <= high <= 2^20.
LengthRange parse_length_range(const std::string& text, const std::string& option);

// The largest token id that is drawn.
inline constexpr int64_t kMaxDrawnId = 10000;

struct BenchWorkload {
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int64_t> output_lengths;
  // For every sequence; those whose answers are complete end before their full length.
  std::optional<StructuredOutput> structured_output;
  // Adapters that the sequences take in turn; empty: none has one.
  std::vector<std::string> loras;

  int64_t num_prompt_tokens() const;
  int64_t num_output_tokens() const;
  // The longest prompt and output together.
  int64_t max_sequence_length() const;
};

// The workload of nano-vllm's bench.py, token for token with seed 0, 256 sequences and lengths of
// 100 to 1,024: ids in [0, 10000] as Python's random.randint draws them. Here they are taken modulo
// `vocab_size`, so that any model can run them.
BenchWorkload make_bench_workload(int64_t num_seqs, LengthRange input, LengthRange output,
                                  uint64_t seed, int64_t vocab_size);

}  // namespace quire::cli
