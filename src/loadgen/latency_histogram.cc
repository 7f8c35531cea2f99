#include "loadgen/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace quire::loadgen {
namespace {

// 512 buckets for each power of two: a bucket is 1/512 of where it starts, and its middle is at
// most half of that from any value in it.
constexpr int kBits = 9;
constexpr uint64_t kBucketsPerOctave = uint64_t{1} << kBits;
// 2^44 ns are five hours. What takes longer goes into the last bucket.
constexpr int kMaxBits = 44;
constexpr uint64_t kMaxNanoseconds = (uint64_t{1} << kMaxBits) - 1;
constexpr size_t kNumBuckets = (kMaxBits - kBits + 1) * kBucketsPerOctave;

// Values below 2^(kBits + 1) have a bucket each.
size_t bucket_of(uint64_t nanoseconds) {
  const int shift = std::max(0, static_cast<int>(std::bit_width(nanoseconds)) - kBits - 1);
  return static_cast<uint64_t>(shift) * kBucketsPerOctave + (nanoseconds >> shift);
}

double middle_of(size_t bucket) {
  const uint64_t shift = bucket < 2 * kBucketsPerOctave ? 0 : bucket / kBucketsPerOctave - 1;
  const uint64_t first = (bucket - shift * kBucketsPerOctave) << shift;
  const uint64_t width = uint64_t{1} << shift;
  return static_cast<double>(first) + static_cast<double>(width - 1) / 2;
}

}  // namespace

LatencyHistogram::LatencyHistogram() : buckets_(kNumBuckets) {}

void LatencyHistogram::add(double seconds) {
  seconds = std::max(0.0, seconds);
  const double nanoseconds =
      std::min(std::round(seconds * 1e9), static_cast<double>(kMaxNanoseconds));
  ++buckets_[bucket_of(static_cast<uint64_t>(nanoseconds))];
  ++count_;
  const double distance = seconds - mean_;
  mean_ += distance / static_cast<double>(count_);
  squared_distance_ += distance * (seconds - mean_);
  max_ = std::max(max_, seconds);
}

double LatencyHistogram::mean() const {
  return mean_;
}

double LatencyHistogram::standard_deviation() const {
  return count_ == 0 ? 0 : std::sqrt(squared_distance_ / static_cast<double>(count_));
}

double LatencyHistogram::percentile(double share) const {
  const auto rank =
      std::max<int64_t>(1, std::llround(std::ceil(share * static_cast<double>(count_))));
  int64_t seen = 0;
  for (size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::min(middle_of(i) * 1e-9, max_);
  }
  return max_;
}

}  // namespace quire::loadgen
