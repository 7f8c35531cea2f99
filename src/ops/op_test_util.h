#pragma once
// Shared by the tests of the CPU ops: random tensors, and every instruction set in turn.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "base/sanitized_test_util.h"
#include "core/tensor.h"
#include "ops/weight.h"

namespace quire::ops {

// Tests that run once for each instruction set this machine supports.
class IsaTest : public testing::TestWithParam<Isa> {
 protected:
  // Sanitizers make loops of sums slow: there the instruction sets of this machine take turns at
  // the cases, one in `of` each, so that some set has each case. Otherwise each set has all.
  static bool takes(size_t number, size_t of) {
    if (!kSanitized) return true;
    const std::vector<Isa> sets = supported_isas();
    const auto turn = static_cast<size_t>(std::ranges::find(sets, GetParam()) - sets.begin());
    return (number + turn) % std::min(of, sets.size()) == 0;
  }
};

inline std::string isa_test_name(const testing::TestParamInfo<Isa>& info) {
  return std::string(name_of(info.param));
}

// A tensor that owns its memory.
template <typename T>
class OwnedTensor {
 public:
  explicit OwnedTensor(std::vector<int64_t> shape, T value = T()) : shape_(std::move(shape)) {
    int64_t count = 1;
    for (int64_t extent : shape_) count *= extent;
    values_.assign(static_cast<size_t>(count), value);
  }
  Tensor tensor() {
    if (shape_.size() == 1) return Tensor(values_.data(), dtype_of<T>(), {shape_[0]});
    return Tensor(values_.data(), dtype_of<T>(), {shape_[0], shape_[1]});
  }
  std::vector<T>& values() { return values_; }
  T& at(int64_t row, int64_t column) {
    return values_[static_cast<size_t>(row * shape_[1] + column)];
  }
  bool same_bits(const OwnedTensor& other) const {
    return values_.size() == other.values_.size() &&
           std::memcmp(values_.data(), other.values_.data(), values_.size() * sizeof(T)) == 0;
  }

 private:
  std::vector<int64_t> shape_;
  std::vector<T> values_;
};

inline OwnedTensor<float> random_tensor(std::vector<int64_t> shape, std::mt19937& random) {
  OwnedTensor<float> tensor(std::move(shape));
  std::normal_distribution<float> normal;
  for (float& value : tensor.values()) value = normal(random);
  return tensor;
}

inline int64_t random_int(int64_t low, int64_t high, std::mt19937& random) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

}  // namespace quire::ops
