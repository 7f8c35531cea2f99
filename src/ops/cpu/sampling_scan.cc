#include "ops/cpu/sampling_scan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

namespace quire::ops {
namespace {

// Enough independent accumulators to keep vector units busy; compilers keep them in registers.
constexpr size_t kLanes = 16;

float max_of(const float* values, size_t count) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t j = 0; j < kLanes; ++j) {
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
    }
  }
  for (size_t j = 0; i < count; ++i, ++j) {
    lanes[j] = values[i] > lanes[j] ? values[i] : lanes[j];
  }
  return *std::max_element(lanes, lanes + kLanes);
}

size_t block_size_at(size_t begin, size_t row_size) {
  return std::min(kScanBlock, row_size - begin);
}

}  // namespace

void block_maxima(std::span<const float> row, std::vector<float>& maxima) {
  maxima.clear();
  for (size_t begin = 0; begin < row.size(); begin += kScanBlock) {
    maxima.push_back(max_of(&row[begin], block_size_at(begin, row.size())));
  }
}

int32_t first_of_maximum(std::span<const float> row, std::span<const float> maxima, float max) {
  const auto block = std::find(maxima.begin(), maxima.end(), max) - maxima.begin();
  const auto begin = row.begin() + block * static_cast<std::ptrdiff_t>(kScanBlock);
  return static_cast<int32_t>(std::find(begin, row.end(), max) - row.begin());
}

// In three loops, because GCC vectorises each but not one loop of all.
double sum_exp(std::span<const float> row, float max, float scale) {
  double sum = 0;
  std::array<float, kScanBlock> block;
  for (size_t begin = 0; begin < row.size(); begin += kScanBlock) {
    const size_t size = block_size_at(begin, row.size());
    block.fill(kLowestExponent);
    for (size_t i = 0; i < size; ++i) block[i] = clamp_exponent((row[begin + i] - max) * scale);
    for (float& value : block) value = fast_exp(value);
    std::array<float, kLanes> lanes{};
    for (size_t i = 0; i < kScanBlock; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) lanes[j] += block[i + j];
    }
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  return sum;
}

int64_t count_before(std::span<const float> row, float value, int32_t id) {
  const auto at = static_cast<size_t>(id);
  int64_t count = 0;
  for (size_t begin = 0; begin < row.size(); begin += kScanBlock) {
    const size_t size = block_size_at(begin, row.size());
    int32_t above = 0;
    for (size_t i = 0; i < size; ++i) above += row[begin + i] > value ? 1 : 0;
    int32_t equal = 0;
    const size_t before = std::min(size, at - std::min(at, begin));
    for (size_t i = 0; i < before; ++i) equal += row[begin + i] == value ? 1 : 0;
    count += above + equal;
  }
  return count;
}

void collect(std::span<const float> row, std::span<const float> maxima, float threshold,
             std::vector<Candidate>& candidates) {
  candidates.clear();
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < threshold) continue;
    const size_t begin = block * kScanBlock;
    const size_t end = begin + block_size_at(begin, row.size());
    for (size_t i = begin; i < end; ++i) {
      if (row[i] >= threshold) candidates.push_back({row[i], static_cast<int32_t>(i), 0.0f});
    }
  }
}

void collect_top(std::span<const float> row, std::span<const float> maxima, float threshold,
                 size_t count, std::vector<Candidate>& candidates) {
  // At least `count` logits are as high as the maximum of the count-th best block.
  if (count <= maxima.size()) {
    std::vector<float> best(maxima.begin(), maxima.end());
    const auto last = best.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(best.begin(), last, best.end(), std::greater<>());
    threshold = std::max(threshold, *last);
  }
  collect(row, maxima, threshold, candidates);
  if (candidates.size() <= count) return;
  const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(candidates.begin(), last, candidates.end(), is_before);
  const float lowest = last->logit;
  std::erase_if(candidates, [lowest](const Candidate& c) { return c.logit < lowest; });
}

bool any_noise_at_least(NoiseKey key, uint32_t first_id, size_t count, uint32_t threshold) {
  uint32_t any = 0;
  for (size_t i = 0; i < count; ++i) {
    any |= noise_bits(key, first_id + static_cast<uint32_t>(i)) >= threshold ? 1u : 0u;
  }
  return any != 0;
}

}  // namespace quire::ops
