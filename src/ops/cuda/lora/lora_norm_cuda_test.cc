// Norms with the weights of adapters in slots, against plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"

namespace quire::ops {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
constexpr float kEps = 1e-5f;
// Other norms' weights lie between in the table.
constexpr int64_t kStride = 3;

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16:
      return 5e-3;
    case DType::kFloat16:
      return 7e-4;
    default:
      return 1e-6;
  }
}

struct Case {
  DType dtype = DType::kBFloat16;
  int64_t n = 64;
  std::vector<int> rows = {1, 5, 3};  // of each slot, those without one first
  int64_t first_row = 0;              // rows of the step before it are not the matrices'
};

class LoraNormCudaTest : public CudaTest {
 protected:
  void run(const Case& sizes);
};

// Every second slot, the first of them included, has a weight.
void LoraNormCudaTest::run(const Case& sizes) {
  const auto n = static_cast<size_t>(sizes.n);
  const int total = std::accumulate(sizes.rows.begin(), sizes.rows.end(), 0);
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + ", n " + std::to_string(n) + ", rows " +
               std::to_string(total));
  std::vector<std::vector<float>> weights;
  std::vector<std::unique_ptr<DeviceArray<float>>> on_device;
  std::vector<const float*> table(sizes.rows.size() * kStride);
  for (size_t slot = 0; slot + 1 < sizes.rows.size(); ++slot) {
    weights.push_back(random_values(n, random()));
    on_device.push_back(std::make_unique<DeviceArray<float>>(weights.back()));
    if (slot % 2 == 0) table[slot * kStride] = on_device.back()->data();
  }
  DeviceArray<const float*> device_table(table);

  std::vector<int32_t> order(static_cast<size_t>(total));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random());
  std::vector<int> slot_of(order.size());
  std::vector<LoraItem> items;
  int32_t next = 0;
  for (int slot = -1; slot + 1 < std::ssize(sizes.rows); ++slot) {
    for (int left = sizes.rows[static_cast<size_t>(slot + 1)]; left > 0;) {
      const int count = std::min(left, kLoraItemRows);
      items.push_back({slot, next, count, 0});
      for (int i = 0; i < count; ++i) {
        slot_of[static_cast<size_t>(order[static_cast<size_t>(next + i)])] = slot;
      }
      next += count;
      left -= count;
    }
  }
  const auto num_items = static_cast<int32_t>(items.size());
  items.push_back({0, 1 << 20, kLoraItemRows, 0});  // not looked at
  DeviceArray<LoraItem> device_items(items);
  DeviceArray<int32_t> device_num_items(std::vector<int32_t>{num_items});
  DeviceArray<int32_t> device_order(order);
  const auto num_rows = static_cast<size_t>(total - sizes.first_row);
  const auto x = rounded(sizes.dtype, random_values(num_rows * n, random()));
  const auto before = rounded(sizes.dtype, random_values(num_rows * n, random()));
  DeviceElements device_x(sizes.dtype, x);
  DeviceElements out(sizes.dtype, before.size());
  const CudaLoraNorm args = {.dtype = sizes.dtype,
                             .rows = {.items = device_items.data(),
                                      .num_items = device_num_items.data(),
                                      .max_items = std::ssize(items),
                                      .rows = device_order.data(),
                                      .first_row = sizes.first_row,
                                      .num_rows = static_cast<int64_t>(num_rows)},
                             .weights = device_table.data(),
                             .weight_stride = kStride,
                             .x = device_x.data(),
                             .eps = kEps,
                             .n = sizes.n,
                             .out = out.data()};
  const auto run_kernel = [&] {
    out.upload(before);
    cuda::lora_norm(stream(), args);
    synchronize();
    return out.download_bytes();
  };
  const std::vector<std::byte> bytes = run_kernel();
  ASSERT_TRUE(run_kernel() == bytes) << "a second run gives other bits";
  const std::vector<float> actual = decode(sizes.dtype, bytes);
  for (size_t row = 0; row < num_rows; ++row) {
    const int slot = slot_of[row + static_cast<size_t>(sizes.first_row)];
    const std::span got(&actual[row * n], n);
    if (slot < 0 || slot % 2 != 0) {
      ASSERT_TRUE(std::ranges::equal(got, std::span(&before[row * n], n)))
          << "row " << row << " has changed where no norm is trained";
      continue;
    }
    const float* in = &x[row * n];
    double squares = 0;
    for (size_t i = 0; i < n; ++i) squares += static_cast<double>(in[i]) * in[i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + kEps);
    std::vector<float> wanted;
    for (size_t i = 0; i < n; ++i) {
      wanted.push_back(static_cast<float>(in[i] * scale * weights[static_cast<size_t>(slot)][i]));
    }
    ASSERT_TRUE(is_close(got, wanted, tolerance_of(sizes.dtype))) << "row " << row;
  }
}

TEST_F(LoraNormCudaTest, TakesAnySizes) {
  for (const DType dtype : kDTypes) {
    for (const int64_t n : {1, 7, 8, 24, 1000, 1037, 2048, 4096, 8200}) {
      run({.dtype = dtype, .n = n});
    }
  }
}

TEST_F(LoraNormCudaTest, TakesTheRowsOfEachSlot) {
  for (const DType dtype : kDTypes) {
    run({.dtype = dtype, .rows = {0, 1}});
    run({.dtype = dtype, .rows = {40, 0}});
    run({.dtype = dtype, .rows = {3, 100, 33, 64, 1}});
    run({.dtype = dtype, .rows = {9, 100, 33}, .first_row = 23});
  }
}

}  // namespace
}  // namespace quire::ops
