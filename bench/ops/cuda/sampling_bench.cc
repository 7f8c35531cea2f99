// Sampling and log-probabilities: bound by one read of the logits at large batches, by latency at
// small ones.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "bench.h"
#include "ops/cuda/kernels.h"
#include "ops/sampling_noise.h"

namespace quire::bench {
namespace {

constexpr int64_t kVocab = 151936;

struct Settings {
  const char* name;
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  bool is_peaked;
};

std::vector<float> normal_values(float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<size_t>(4 * kVocab));
  for (float& value : values) value = normal(random);
  return values;
}

// Rows from anywhere in `normals`. Peaked ones are like a language model's: most of a row is far
// from the top, which some twenty tokens share.
DeviceBuffer make_logits(const std::vector<float>& normals, int64_t rows, bool is_peaked,
                         std::mt19937& random) {
  std::vector<float> values;
  for (int64_t row = 0; row < rows; ++row) {
    const auto begin = normals.begin() + static_cast<std::ptrdiff_t>(random() % (3 * kVocab));
    values.insert(values.end(), begin, begin + kVocab);
    for (int i = 0; is_peaked && i < 20; ++i) {
      values[values.size() - 1 - random() % kVocab] = 24.0f - 0.5f * static_cast<float>(i);
    }
  }
  return DeviceBuffer::of(values);
}

void run(CudaBench& bench) {
  constexpr Settings kSettings[] = {
      {"greedy", 0, 0, 1, 0, true},
      {"temperature", 1, 0, 1, 0, true},
      {"temperature_flat", 1, 0, 1, 0, false},
      {"top_k20_top_p", 0.6f, 20, 0.95f, 0, true},
      {"top_k20_top_p_flat", 0.6f, 20, 0.95f, 0, false},
      {"top_p", 0.6f, 0, 0.95f, 0, true},
      {"top_p_flat", 1, 0, 0.9f, 0, false},
      {"top_k1000_flat", 1, 1000, 1, 0, false},
      {"min_p", 1, 0, 1, 0.05f, true},
  };
  std::mt19937 random(2);
  for (const int64_t rows : {1, 16, 64, 256}) {
    const auto count = static_cast<size_t>(rows);
    const double bytes = 4.0 * static_cast<double>(rows * kVocab);
    const int num_sets = bench.sets_for(bytes);
    const DeviceBuffer scratch =
        DeviceBuffer::of_bytes(static_cast<size_t>(ops::cuda::sample_scratch_bytes(rows, kVocab)));
    const DeviceBuffer out = DeviceBuffer::of_bytes(count * sizeof(int32_t));
    std::vector<uint32_t> key_values;
    for (uint64_t row = 0; row < count; ++row) {
      const ops::NoiseKey key = ops::noise_key(row, 0, 5);
      key_values.insert(key_values.end(), {key.low, key.high});
    }
    const DeviceBuffer keys = DeviceBuffer::of(key_values);
    for (const bool is_peaked : {true, false}) {
      const std::vector<float> normals = normal_values(is_peaked ? 2.5f : 1.0f);
      std::vector<DeviceBuffer> logits;
      for (int i = 0; i < num_sets; ++i) {
        logits.push_back(make_logits(normals, rows, is_peaked, random));
      }
      const DeviceBuffer ids = DeviceBuffer::of(std::vector<int32_t>(count, 17));
      const DeviceBuffer found = DeviceBuffer::of_bytes(count * 42 * sizeof(float));
      auto* values = found.as<float>();
      auto* numbers = reinterpret_cast<int32_t*>(values + 21 * count);
      bench.time(
          std::string("logprobs/") + (is_peaked ? "peaked/" : "flat/") + std::to_string(rows),
          {.bytes = bytes}, num_sets, [&](int set) {
            ops::cuda::logprobs(bench.stream(),
                                {logits[static_cast<size_t>(set)].as<float>(), kVocab, rows, kVocab,
                                 ids.as<int32_t>(), 20, values, numbers, numbers + count,
                                 values + count, scratch.data()});
          });
      for (const Settings& settings : kSettings) {
        if (settings.is_peaked != is_peaked) continue;
        const auto temperature = DeviceBuffer::of(std::vector<float>(count, settings.temperature));
        const auto top_k = DeviceBuffer::of(std::vector<int32_t>(count, settings.top_k));
        const auto top_p = DeviceBuffer::of(std::vector<float>(count, settings.top_p));
        const auto min_p = DeviceBuffer::of(std::vector<float>(count, settings.min_p));
        bench.time(std::string("sample/") + settings.name + "/" + std::to_string(rows),
                   {.bytes = bytes}, num_sets, [&](int set) {
                     ops::cuda::sample(bench.stream(),
                                       {logits[static_cast<size_t>(set)].as<float>(), kVocab, rows,
                                        kVocab, temperature.as<float>(), top_k.as<int32_t>(),
                                        top_p.as<float>(), min_p.as<float>(), keys.as<uint32_t>(),
                                        out.as<int32_t>(), scratch.data()});
                   });
      }
    }
  }
}

// Penalties of every row. The bytes are those of its history, and of a sector of 32 for each
// token's logit, read and written.
void run_adjust(CudaBench& bench) {
  constexpr int kBlockSize = 16;
  std::mt19937 random(3);
  for (const auto& [rows, context] : {std::pair{1, 1024}, {1, 40'960}, {64, 1024}, {256, 1024}}) {
    const auto count = static_cast<size_t>(rows);
    const int64_t width = context / kBlockSize;
    std::vector<int32_t> tables(count * static_cast<size_t>(width));
    std::iota(tables.begin(), tables.end(), 0);
    std::shuffle(tables.begin(), tables.end(), random);
    std::vector<int32_t> cached(tables.size() * kBlockSize);
    for (int32_t& id : cached) id = static_cast<int32_t>(random() % kVocab);
    std::vector<int32_t> row_seqs(count);
    std::iota(row_seqs.begin(), row_seqs.end(), 0);
    const auto logits = DeviceBuffer::of(std::vector<float>(count * kVocab, 1.5f));
    const auto repetition = DeviceBuffer::of(std::vector<float>(count, 1.05f));
    const auto penalty = DeviceBuffer::of(std::vector<float>(count, 0.01f));
    const auto seqs = DeviceBuffer::of(row_seqs);
    const auto prompts = DeviceBuffer::of(std::vector<int32_t>(count, context / 2));
    const auto contexts = DeviceBuffer::of(std::vector<int32_t>(count, context));
    const auto blocks = DeviceBuffer::of(tables);
    const auto ids = DeviceBuffer::of(cached);
    const auto no_biases = DeviceBuffer::of(std::vector<int32_t>(count + 1, 0));
    const double bytes = static_cast<double>(rows) * context * (4 + 2 * 32);
    bench.time("adjust_logits/" + std::to_string(rows) + "x" + std::to_string(context),
               {.bytes = bytes}, 1, [&](int) {
                 ops::cuda::adjust_logits(
                     bench.stream(),
                     {logits.as<float>(), kVocab, rows, kVocab, repetition.as<float>(),
                      penalty.as<float>(), penalty.as<float>(), seqs.as<int32_t>(),
                      prompts.as<int32_t>(), contexts.as<int32_t>(), blocks.as<int32_t>(), width,
                      kBlockSize, ids.as<int32_t>(), no_biases.as<int32_t>(), nullptr});
               });
  }
}

const BenchGroup group("sampling", run);
const BenchGroup adjust_group("adjust_logits", run_adjust);

}  // namespace
}  // namespace quire::bench
