#pragma once
// Upper bounds of an engine's and a request's settings. They keep later sums far from overflow.
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
// The most likely tokens that SamplingParams::logprobs and prompt_logprobs may ask for.
inline constexpr int kMaxLogprobs = 20;
// A client's weight in the sharing of the engine, in hundredths.
inline constexpr int32_t kDefaultClientWeight = 100;
inline constexpr int32_t kMaxClientWeight = 10'000;

}  // namespace quire
