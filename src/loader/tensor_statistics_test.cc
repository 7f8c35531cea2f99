#include "loader/tensor_statistics.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/dtype.h"
#include "loader/safetensors.h"
#include "loader/safetensors_test_util.h"

namespace quire {
namespace {

TensorStatistics statistics_of_file(const FileTensor& tensor, int num_threads = 1) {
  // An odd alignment, as files may have.
  const std::string file = to_safetensors({tensor}, 3);
  const auto tensors = parse_safetensors(std::as_bytes(std::span(file)), "test");
  ThreadPool pool(num_threads);
  return statistics_of(tensors.front(), pool);
}

TEST(TensorStatistics, CountWhatIsNoNumber) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values = {1.5f, kNan, -kInfinity, 0, -0.0f, kInfinity, -7, kNan, kNan};
  const auto found = statistics_of_file({"a", "F32", {9}, bytes_of(values)});
  EXPECT_TRUE(found.is_floating);
  EXPECT_EQ(found.num_values, 9);
  EXPECT_EQ(found.num_nan, 3);
  EXPECT_EQ(found.num_infinite, 2);
  EXPECT_EQ(found.num_zero, 2);
  EXPECT_EQ(found.min, -7);
  EXPECT_EQ(found.max, 1.5);
}

TEST(TensorStatistics, ReadEveryFloatingType) {
  const auto expect = [](const FileTensor& tensor) {
    const auto found = statistics_of_file(tensor);
    EXPECT_TRUE(found.is_floating) << tensor.dtype;
    EXPECT_EQ(found.num_values, 2) << tensor.dtype;
    EXPECT_EQ(found.min, -2) << tensor.dtype;
    EXPECT_EQ(found.max, 0.5) << tensor.dtype;
  };
  expect({"a", "F64", {2}, bytes_of<double>({-2, 0.5})});
  expect({"a", "F32", {2}, bytes_of<float>({-2, 0.5f})});
  expect({"a", "BF16", {2}, bytes_of<BFloat16>({BFloat16(-2), BFloat16(0.5f)})});
  expect({"a", "F16", {2}, bytes_of<Float16>({Float16(-2), Float16(0.5f)})});
  expect({"a", "F8_E4M3", {2}, bytes_of<Float8E4M3>({Float8E4M3(-2), Float8E4M3(0.5f)})});
}

TEST(TensorStatistics, LeaveOtherTypesAlone) {
  const auto found = statistics_of_file({"a", "I64", {2}, bytes_of<int64_t>({1, 2})});
  EXPECT_FALSE(found.is_floating);
  EXPECT_EQ(found.num_values, 0);
}

TEST(TensorStatistics, NoValues) {
  const auto found = statistics_of_file({"a", "F32", {0, 3}, ""});
  EXPECT_EQ(found.num_values, 0);
  EXPECT_EQ(found.min, 0);
  EXPECT_EQ(found.max, 0);
}

TEST(TensorStatistics, AreTheSameOnEveryNumberOfThreads) {
  std::vector<float> values(300'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000) - 300;
  values[299'999] = std::numeric_limits<float>::quiet_NaN();
  for (const int num_threads : {1, 3}) {
    const auto found = statistics_of_file({"a", "F32", {300'000}, bytes_of(values)}, num_threads);
    EXPECT_EQ(found.num_values, 300'000);
    EXPECT_EQ(found.num_nan, 1);
    EXPECT_EQ(found.num_zero, 300);
    EXPECT_EQ(found.min, -300);
    EXPECT_EQ(found.max, 699);
  }
}

}  // namespace
}  // namespace quire
