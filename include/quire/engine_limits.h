#pragma once
// The most that the settings of an engine and of its requests may be: bounds that keep later sums
// far from overflow.
#include <cstdint>
#include <limits>

namespace quire {

inline constexpr int64_t kMaxModelLen = int64_t{1} << 24;
inline constexpr int64_t kMaxNumBatchedTokens = int64_t{1} << 22;
inline constexpr int64_t kMaxNumSeqs = int64_t{1} << 16;
inline constexpr int64_t kMaxNumBlocks = std::numeric_limits<int32_t>::max() - 1;
inline constexpr int64_t kMaxTensorParallelSize = 256;
inline constexpr int64_t kMaxPipelineParallelSize = 256;
inline constexpr int64_t kMaxThreads = 1024;
// Of the most likely tokens, in SamplingParams::logprobs and prompt_logprobs.
inline constexpr int kMaxLogprobs = 20;
// Of a client's weight, in hundredths.
inline constexpr int32_t kDefaultClientWeight = 100;
inline constexpr int32_t kMaxClientWeight = 10'000;

}  // namespace quire
