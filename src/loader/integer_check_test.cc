#include "loader/integer_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "quire/error.h"

namespace quire {
namespace {

template <typename T>
std::string error_of(const std::vector<T>& values, const IntegerRule& rule,
                     IndexRange inputs = {}) {
  CheckpointTensor tensor;
  tensor.name = "a.g_idx";
  tensor.file = "a.safetensors";
  tensor.data = reinterpret_cast<const std::byte*>(values.data());
  tensor.bytes = values.size() * sizeof(T);
  if (inputs.size() == 0) inputs.end = static_cast<int64_t>(values.size());
  try {
    check_integers(tensor, sizeof(T) == sizeof(int64_t) ? DType::kInt64 : DType::kInt32, rule,
                   inputs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

using Groups = std::vector<int32_t>;

TEST(IntegerCheck, GroupsAreOnesThatThereAre) {
  const IntegerRule rule{.num_groups = 3};
  EXPECT_EQ(error_of(Groups{0, 2, 1, 1, 0, 2}, rule), "no error");
  const std::string unset =
      "a.safetensors: the tensor a.g_idx holds -1 at index 0; expected a group from 0 to 2.";
  EXPECT_EQ(error_of(Groups{-1, -1, -1}, rule), unset);
  EXPECT_EQ(error_of(Groups{-1, -1, -1}, {.num_groups = 3, .may_be_unset = true}), "no error");
  EXPECT_EQ(error_of(Groups{-1, 0, -1}, {.num_groups = 3, .may_be_unset = true}), unset);
  EXPECT_EQ(error_of(Groups{0, 1, 3}, rule),
            "a.safetensors: the tensor a.g_idx holds 3 at index 2; expected a group from 0 to 2.");
  EXPECT_EQ(error_of(Groups{0, 1, 3}, {}), "no error");
}

TEST(IntegerCheck, GroupsOfAGpuBeginAtItsMultiples) {
  const IntegerRule rule{.num_groups = 3, .group_multiple = 2};
  EXPECT_EQ(error_of(Groups{2, 0, 1, 1, 0, 2}, rule), "no error");
  EXPECT_EQ(error_of(Groups{0, 0, 1, 1, 2}, rule), "no error");  // the last may be short
  EXPECT_EQ(error_of(Groups{2, 2, 0, 0}, rule), "no error");     // and one may have no inputs
  EXPECT_EQ(error_of(Groups{0, 1, 1, 1, 0, 0}, rule),
            "a.safetensors: the tensor a.g_idx puts 3 inputs into groups before group 1; expected "
            "a multiple of 2, as a GPU needs it. --dtype float32 and --device cpu take groups of "
            "any sizes.");
  // Those of other ranks are theirs to check.
  EXPECT_EQ(error_of(Groups{0, 1, 1, 1, 0, 0}, rule, {1, 3}), "no error");
}

TEST(IntegerCheck, ShapesAreThoseOfTheLayer) {
  const IntegerRule rule{.shape = {48, 96}};
  EXPECT_EQ(error_of(std::vector<int64_t>{48, 96}, rule), "no error");
  EXPECT_EQ(error_of(Groups{48, 96}, rule), "no error");
  EXPECT_EQ(error_of(std::vector<int64_t>{48, 95}, rule),
            "a.safetensors: the tensor a.g_idx holds [48, 95]; config.json makes the layer's shape "
            "[48, 96].");
}

}  // namespace
}  // namespace quire
