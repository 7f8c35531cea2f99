// QK-norm, rotary embedding and the cache write in one kernel, against plain loops in double
// precision.
#include <cmath>
#include <string>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"

namespace quire::ops {
namespace {

struct Case {
  DType dtype = DType::kBFloat16;
  DType cache_dtype = DType::kBFloat16;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 128;
  int rotary_dim = 128;
  int block_size = 16;
  int64_t num_tokens = 13;
  bool has_norms = true;
  bool has_scales = false;  // of the cache's heads
};

constexpr int kMaxPosition = 50;
constexpr int kBlocks = 5;
constexpr float kEps = 1e-6f;

// Of results rounded to dtype.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 4e-3;
    case DType::kFloat16:
      return 5e-4;
    case DType::kFloat8E4M3:
      return 6.3e-2;
    case DType::kFloat8E5M2:
      return 0.126;
    default:
      return 2e-6;
  }
}

class QkNormRopeCudaTest : public CudaTest {
 protected:
  void run(const Case& sizes);

 private:
  // Normed and rotated, as a token's head should be.
  static std::vector<float> expected_head(const Case& sizes, const float* x, const float* norm,
                                          const float* cos_sin);
};

std::vector<float> QkNormRopeCudaTest::expected_head(const Case& sizes, const float* x,
                                                     const float* norm, const float* cos_sin) {
  const auto size = static_cast<size_t>(sizes.head_dim);
  const auto half = static_cast<size_t>(sizes.rotary_dim) / 2;
  std::vector<double> y(x, x + size);
  if (norm != nullptr) {
    double sum = 0;
    for (const double value : y) sum += value * value;
    const double factor = 1 / std::sqrt(sum / static_cast<double>(size) + double{kEps});
    for (size_t d = 0; d < size; ++d) y[d] *= factor * norm[d];
  }
  for (size_t d = 0; d < half; ++d) {
    const double low = y[d];
    const double high = y[d + half];
    y[d] = low * cos_sin[d] - high * cos_sin[half + d];
    y[d + half] = high * cos_sin[d] + low * cos_sin[half + d];
  }
  return {y.begin(), y.end()};
}

void QkNormRopeCudaTest::run(const Case& sizes) {
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + " with " +
               std::string(name_of(sizes.cache_dtype)) + ", heads " +
               std::to_string(sizes.num_heads) + "/" + std::to_string(sizes.num_kv_heads) + " of " +
               std::to_string(sizes.head_dim) + ", rotary " + std::to_string(sizes.rotary_dim));
  const auto size = static_cast<size_t>(sizes.head_dim);
  const auto tokens = static_cast<size_t>(sizes.num_tokens);
  const auto heads = static_cast<size_t>(sizes.num_heads);
  const auto kv_heads = static_cast<size_t>(sizes.num_kv_heads);
  const size_t row = (heads + 2 * kv_heads) * size;
  const auto block_size = static_cast<size_t>(sizes.block_size);

  const auto qkv = rounded(sizes.dtype, random_values(tokens * row, random()));
  const auto q_norm = random_values(size, random());
  const auto k_norm = random_values(size, random());
  const auto cos_sin =
      random_values(static_cast<size_t>(kMaxPosition * sizes.rotary_dim), random());
  std::vector<int32_t> positions(tokens);
  for (int32_t& position : positions) position = static_cast<int32_t>(random()() % kMaxPosition);
  std::vector<int64_t> slots(kBlocks * block_size);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
  std::shuffle(slots.begin(), slots.end(), random());
  slots.resize(tokens);
  for (size_t t = 2; t < tokens; t += 5) slots[t] = -1;

  DeviceElements device_qkv(sizes.dtype, qkv);
  DeviceArray<float> device_q_norm(q_norm);
  DeviceArray<float> device_k_norm(k_norm);
  DeviceArray<float> device_cos_sin(cos_sin);
  DeviceArray<int32_t> device_positions(positions);
  DeviceArray<int64_t> device_slots(slots);
  const size_t cache_size = kBlocks * block_size * kv_heads * size;
  DeviceElements keys(sizes.cache_dtype, cache_size);
  DeviceElements values(sizes.cache_dtype, cache_size);
  std::vector<float> key_scales(kv_heads, 1.0f);
  std::vector<float> value_scales(kv_heads, 1.0f);
  if (sizes.has_scales) {
    key_scales = random_scales(kv_heads, random());
    value_scales = random_scales(kv_heads, random());
  }
  DeviceArray<float> device_key_scales(key_scales);
  DeviceArray<float> device_value_scales(value_scales);
  const CudaKvScales scales = {.keys = device_key_scales.data(),
                               .values = device_value_scales.data()};
  cuda::qk_norm_rope_cache(stream(), {.dtype = sizes.dtype,
                                      .qkv = device_qkv.data(),
                                      .num_heads = sizes.num_heads,
                                      .q_norm = sizes.has_norms ? device_q_norm.data() : nullptr,
                                      .k_norm = sizes.has_norms ? device_k_norm.data() : nullptr,
                                      .eps = kEps,
                                      .cos_sin = device_cos_sin.data(),
                                      .rotary_dim = sizes.rotary_dim,
                                      .num_tokens = sizes.num_tokens,
                                      .positions = device_positions.data(),
                                      .slot_mapping = device_slots.data(),
                                      .cache = {.dtype = sizes.cache_dtype,
                                                .keys = keys.data(),
                                                .values = values.data(),
                                                .block_size = sizes.block_size,
                                                .num_kv_heads = sizes.num_kv_heads,
                                                .head_dim = sizes.head_dim},
                                      .scales = sizes.has_scales ? scales : CudaKvScales()});
  synchronize();

  const auto actual_qkv = device_qkv.download();
  const auto actual_keys = keys.download();
  const auto actual_values = values.download();
  const double tolerance = tolerance_of(sizes.dtype);
  std::vector<bool> is_stored(kBlocks * block_size);
  for (size_t t = 0; t < tokens; ++t) {
    const float* x = &qkv[t * row];
    const float* rotation = &cos_sin[static_cast<size_t>(positions[t] * sizes.rotary_dim)];
    for (size_t head = 0; head < heads; ++head) {
      const auto expected = expected_head(sizes, x + head * size,
                                          sizes.has_norms ? q_norm.data() : nullptr, rotation);
      ASSERT_TRUE(is_close({&actual_qkv[t * row + head * size], size}, expected, tolerance));
    }
    if (slots[t] < 0) continue;
    const auto slot = static_cast<size_t>(slots[t]);
    is_stored[slot] = true;
    for (size_t head = 0; head < kv_heads; ++head) {
      const size_t place =
          ((slot / block_size * kv_heads + head) * block_size + slot % block_size) * size;
      const float* k = x + (heads + head) * size;
      auto expected_key =
          expected_head(sizes, k, sizes.has_norms ? k_norm.data() : nullptr, rotation);
      std::vector<float> value(k + kv_heads * size, k + (kv_heads + 1) * size);
      for (float& element : expected_key) element /= key_scales[head];
      for (float& element : value) element /= value_scales[head];
      const auto expected_value = rounded(sizes.cache_dtype, value);
      ASSERT_TRUE(
          is_close({&actual_keys[place], size}, expected_key, tolerance_of(sizes.cache_dtype)));
      const std::vector<float> stored(&actual_values[place], &actual_values[place] + size);
      ASSERT_EQ(stored, expected_value);
    }
  }
  // Nothing is written beside the tokens' slots.
  for (size_t slot = 0; slot < is_stored.size(); ++slot) {
    if (is_stored[slot]) continue;
    const size_t place = (slot / block_size * kv_heads * block_size + slot % block_size) * size;
    ASSERT_TRUE(std::isnan(actual_keys[place]) && std::isnan(actual_values[place]));
  }
}

TEST_F(QkNormRopeCudaTest, TakesEveryTypeAndHeadSize) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const DType cache_dtype : {dtype, DType::kFloat8E4M3}) {
      for (const int head_dim : {8, 40, 48, 64, 80, 96, 128, 192, 256, 512}) {
        run({.dtype = dtype,
             .cache_dtype = cache_dtype,
             .head_dim = head_dim,
             .rotary_dim = head_dim});
      }
    }
  }
}

TEST_F(QkNormRopeCudaTest, DividesByScalesOfHeads) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16, DType::kFloat32}) {
    for (const DType cache_dtype : {DType::kFloat8E4M3, DType::kFloat8E5M2}) {
      for (const int head_dim : {8, 40, 64, 128, 256, 512}) {
        for (const bool has_scales : {false, true}) {
          run({.dtype = dtype,
               .cache_dtype = cache_dtype,
               .num_kv_heads = 4,
               .head_dim = head_dim,
               .rotary_dim = head_dim,
               .has_scales = has_scales});
        }
      }
    }
  }
}

TEST_F(QkNormRopeCudaTest, RotatesPartsOfHeads) {
  for (const int rotary_dim : {2, 32, 64, 96, 126}) run({.rotary_dim = rotary_dim});
}

TEST_F(QkNormRopeCudaTest, TakesAnyNumberOfHeadsAndTokens) {
  for (const int num_kv_heads : {1, 3, 8}) {
    for (const int group : {1, 2, 7, 16}) {
      for (const int64_t num_tokens : {1, 2, 67}) {
        run({.num_heads = num_kv_heads * group,
             .num_kv_heads = num_kv_heads,
             .num_tokens = num_tokens});
      }
    }
  }
}

TEST_F(QkNormRopeCudaTest, TakesModelsWithoutNormsAndLargeBlocks) {
  run({.has_norms = false});
  run({.head_dim = 72, .rotary_dim = 72, .has_norms = false});
  run({.block_size = 48, .num_tokens = 111});
}

}  // namespace
}  // namespace quire::ops
