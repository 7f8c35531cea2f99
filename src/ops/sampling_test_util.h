#pragma once
// For tests of sampling: rows sampled on the CPU, and random rows of logits with random parameters.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "ops/sampling.h"

namespace quire::ops::sampling_test {

using Logits = std::vector<float>;

inline std::vector<SampledToken> sample_rows(std::vector<Logits> logits,
                                             const std::vector<SamplingRow>& rows,
                                             int num_threads = 1) {
  ThreadPool pool(num_threads);
  Stream stream(pool);
  const auto width = static_cast<int64_t>(logits[0].size());
  Logits all;
  for (const Logits& row : logits) all.insert(all.end(), row.begin(), row.end());
  const Tensor tensor(all.data(), DType::kFloat32, {static_cast<int64_t>(rows.size()), width});
  std::vector<SampledToken> out(rows.size());
  sample(stream, tensor, rows, out);
  return out;
}

inline int32_t sample_one(const Logits& logits, const SamplingRow& row) {
  return sample_rows({logits}, {row})[0].token_id;
}

struct RandomRow {
  Logits logits;
  SamplingRow row;
  std::vector<int32_t> prompt_ids, output_ids, masked_ids;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

class RowMaker {
 public:
  explicit RowMaker(uint64_t seed) : engine_(seed) {}

  int pick(int low, int high) {
    return low + static_cast<int>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  float real(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() >> 40) * 0x1p-24f;
  }

  Logits logits(int width) {
    std::normal_distribution<float> normal(0, real(0.1f, 6));
    Logits result(static_cast<size_t>(width));
    const bool rounded = pick(1, 4) == 1;  // for ties
    for (float& logit : result) {
      logit = normal(engine_);
      if (rounded) logit = std::round(logit);
      if (pick(1, 50) == 1) logit = -std::numeric_limits<float>::infinity();
    }
    result[0] = 0;  // not all at -infinity
    return result;
  }

  std::vector<int32_t> ids(int width) {
    std::vector<int32_t> result(static_cast<size_t>(pick(0, 20)));
    for (int32_t& id : result) id = pick(0, width - 1);
    return result;
  }

  void fill(RandomRow& r, int width) {
    r.logits = logits(width);
    SamplingRow& row = r.row;
    if (pick(1, 8) == 1) row.temperature = 0;
    if (pick(1, 3) == 1) row.temperature = real(0.1f, 3);
    if (pick(1, 3) == 1) row.top_k = pick(-1, width + 2);
    if (pick(1, 3) == 1) row.top_k = pick(1, 5);
    if (pick(1, 2) == 1) row.top_p = real(0.01f, 0.999f);
    if (pick(1, 4) == 1) row.min_p = real(0.001f, 0.9f);
    row.seed = engine_();
    row.index = static_cast<uint32_t>(pick(0, 3));
    row.position = static_cast<uint64_t>(pick(0, 1000));
    if (pick(1, 4) == 1) {
      r.prompt_ids = ids(width);
      r.output_ids = ids(width);
      row.repetition_penalty = real(0.5f, 2);
      row.presence_penalty = real(-2, 2);
      row.frequency_penalty = real(-2, 2);
    }
    if (pick(1, 4) == 1) {
      r.masked_ids = ids(width);
      std::erase(r.masked_ids, 0);
      r.logit_bias = {{pick(0, width - 1), real(-10, 10)}};
    }
    row.prompt_ids = r.prompt_ids;
    row.output_ids = r.output_ids;
    row.masked_ids = r.masked_ids;
    row.logit_bias = r.logit_bias;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace quire::ops::sampling_test
