#include "loader/scale_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "quire/error.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Of more than one task.
constexpr size_t kManyScales = (size_t{3} << 20) + 5;

class ScaleCheck : public testing::Test {
 protected:
  template <typename T>
  std::string error_of(const std::vector<T>& scales, DType dtype, bool may_be_zero) {
    CheckpointTensor tensor;
    tensor.name = "a.scales";
    tensor.file = "model.safetensors";
    tensor.data = reinterpret_cast<const std::byte*>(scales.data());
    tensor.bytes = scales.size() * sizeof(T);
    try {
      check_scales({{&tensor, dtype, may_be_zero}}, pool_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ThreadPool pool_{2};
};

TEST_F(ScaleCheck, FindsTheFirstOfAll) {
  std::vector<BFloat16> narrow(kManyScales, BFloat16(0.5f));
  EXPECT_EQ(error_of(narrow, DType::kBFloat16, false), "");
  narrow.back() = BFloat16(std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(error_of(narrow, DType::kBFloat16, true), HasSubstr("nan at index 3145732;"));
  narrow[1 << 20] = BFloat16(0.0f);
  EXPECT_THAT(error_of(narrow, DType::kBFloat16, false), HasSubstr("0 at index 1048576;"));
  EXPECT_THAT(error_of(narrow, DType::kBFloat16, true), HasSubstr("nan at index 3145732;"));
}

TEST_F(ScaleCheck, ReadsFloat32) {
  std::vector<float> wide(kManyScales, -2.0f);
  EXPECT_EQ(error_of(wide, DType::kFloat32, false), "");
  wide[700000] = std::numeric_limits<float>::infinity();
  wide[900000] = 0;
  EXPECT_THAT(error_of(wide, DType::kFloat32, false), HasSubstr("inf at index 700000;"));
  wide[700000] = 0;
  EXPECT_EQ(error_of(wide, DType::kFloat32, true), "");
}

TEST_F(ScaleCheck, ScalesThatMayBeZeroAreNotAll) {
  std::vector<Float16> narrow(kManyScales, Float16(0.0f));
  EXPECT_THAT(error_of(narrow, DType::kFloat16, true), HasSubstr("a.scales holds only zeros;"));
  narrow.back() = Float16(0.5f);
  EXPECT_EQ(error_of(narrow, DType::kFloat16, true), "");
}

}  // namespace
}  // namespace quire
