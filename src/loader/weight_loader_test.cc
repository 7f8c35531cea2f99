#include "loader/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <numeric>

#include "base/temporary_folder_test_util.h"
#include "loader/safetensors_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A parameter that keeps what it is given as float32 [rows, columns].
class RecordingParameter final : public Parameter {
 public:
  RecordingParameter(int64_t rows, int64_t columns, std::vector<ParameterPart> parts,
                     DummyInit init = DummyInit::kUniform, std::string leaf = "weight")
      : values(static_cast<size_t>(rows * columns), -1.0f),
        columns_(columns),
        tensors_({{.leaf = std::move(leaf),
                   .dtypes = dense_dtypes(),
                   .parts = std::move(parts),
                   .dummy_init = init,
                   .reason = ", as it is dense"}}) {}

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return values.size() * sizeof(float); }
  void store(const ParameterSlice& slice) override {
    const Tensor& source = slice.source;
    EXPECT_EQ(num_finished, 0);
    EXPECT_EQ(source.dim(1), columns_);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(source.raw()) % size_of(source.dtype()), 0u);
    for (int64_t row = 0; row < source.dim(0); ++row) {
      for (int64_t column = 0; column < columns_; ++column) {
        values.at(static_cast<size_t>((slice.first_row + row) * columns_ + column)) =
            value_of(source, row, column);
      }
    }
  }

  void finish(ThreadPool&) override { ++num_finished; }

  std::vector<float> values;
  int num_finished = 0;

 private:
  static float value_of(const Tensor& source, int64_t row, int64_t column) {
    switch (source.dtype()) {
      case DType::kBFloat16:
        return static_cast<float>(source.row<BFloat16>(row)[column]);
      case DType::kFloat16:
        return static_cast<float>(source.row<Float16>(row)[column]);
      default:
        return source.row<float>(row)[column];
    }
  }

  int64_t columns_;
  std::vector<ParameterTensor> tensors_;
};

// A tensor to be written to a file: 1, 2, 3, ... from `first` on.
struct CountingTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  float first = 0.0f;
};

template <typename T>
std::string counting_bytes(float first, size_t count) {
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) values.push_back(T(first + static_cast<float>(i)));
  return bytes_of(values);
}

FileTensor to_file(const CountingTensor& tensor) {
  size_t count = 1;
  for (const int64_t dim : tensor.shape) count *= static_cast<size_t>(dim);
  std::string bytes;
  if (tensor.dtype == "F32") bytes = counting_bytes<float>(tensor.first, count);
  if (tensor.dtype == "BF16") bytes = counting_bytes<BFloat16>(tensor.first, count);
  if (tensor.dtype == "F16") bytes = counting_bytes<Float16>(tensor.first, count);
  if (tensor.dtype == "F64") bytes = counting_bytes<double>(tensor.first, count);
  if (tensor.dtype == "I32") bytes = counting_bytes<int32_t>(tensor.first, count);
  return {tensor.name, tensor.dtype, tensor.shape, bytes};
}

std::string safetensors(const std::vector<CountingTensor>& tensors, size_t padding = 0) {
  std::vector<FileTensor> files;
  std::transform(tensors.begin(), tensors.end(), std::back_inserter(files), to_file);
  return to_safetensors(files, padding);
}

class WeightLoader : public ::testing::Test {
 protected:
  Checkpoint checkpoint(const std::vector<CountingTensor>& tensors, size_t padding = 0) {
    const std::string bytes = safetensors(tensors, padding);
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << bytes;
    return Checkpoint::open(folder_);
  }

  std::string load_error(const std::vector<CountingTensor>& tensors,
                         const ParameterMap& parameters) {
    try {
      load_weights(checkpoint(tensors), parameters, pool_, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  ThreadPool pool_{2};
};

std::vector<float> counting(float first, size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), first);
  return values;
}

const PackedModules kPacked{{"q_proj", {"qk_proj", 0}}, {"k_proj", {"qk_proj", 1}}};

TEST_F(WeightLoader, FusesAndShardsRowsAndColumns) {
  // Rows 2 and 3 of q and row 1 of k; columns 1 and 2 of o; the second half of a bias.
  RecordingParameter qk(3, 2, {{{4, 2}, {2, 4}, {0, 2}, 0}, {{2, 2}, {1, 2}, {0, 2}, 2}});
  RecordingParameter o(2, 2, {{{2, 4}, {0, 2}, {1, 3}, 0}});
  RecordingParameter bias(2, 1, {{{4}, {2, 4}, {0, 1}, 0}}, DummyInit::kUniform, "bias");
  ParameterMap parameters(kPacked);
  parameters.add("a.qk_proj", qk);
  parameters.add("a.o_proj", o);
  parameters.add("a.o_proj", bias);
  load_weights(checkpoint({{"a.k_proj.weight", "F32", {2, 2}, 10},
                           {"a.o_proj.bias", "F16", {4}, 30},
                           {"a.o_proj.weight", "BF16", {2, 4}, 20},
                           {"a.q_proj.weight", "F32", {4, 2}, 0}}),
               parameters, pool_, {});
  EXPECT_EQ(qk.values, (std::vector<float>{4, 5, 6, 7, 12, 13}));
  EXPECT_EQ(o.values, (std::vector<float>{21, 22, 25, 26}));
  EXPECT_EQ(bias.values, (std::vector<float>{32, 33}));
  for (const RecordingParameter* each : {&qk, &o, &bias}) EXPECT_EQ(each->num_finished, 1);
}

TEST_F(WeightLoader, TakesThePartsOfOneTensorFromBelowEachOther) {
  // The second of two ranks: the lower half of each of three parts of 4, 2 and 2 rows.
  const std::vector<ParameterPart> parts = {
      {{4, 2}, {2, 4}, {0, 2}, 0}, {{2, 2}, {1, 2}, {0, 2}, 2}, {{2, 2}, {1, 2}, {0, 2}, 3}};
  RecordingParameter qkv(4, 2, parts);
  RecordingParameter bias(2, 1, {{{2}, {1, 2}, {0, 1}, 0}, {{2}, {1, 2}, {0, 1}, 1}},
                          DummyInit::kUniform, "bias");
  ParameterMap parameters;
  parameters.add("a.qkv_proj", qkv);
  parameters.add("a.gate_up_proj", bias);
  const std::vector<CountingTensor> tensors = {{"a.qkv_proj.weight", "F32", {8, 2}, 0},
                                               {"a.gate_up_proj.bias", "F32", {4}, 30}};
  const Checkpoint files = checkpoint(tensors);
  int64_t last = 0;
  load_weights(files, parameters, pool_,
               [&](std::string_view, int64_t done, int64_t) { last = done; });
  EXPECT_EQ(qkv.values, (std::vector<float>{4, 5, 6, 7, 10, 11, 14, 15}));
  EXPECT_EQ(bias.values, (std::vector<float>{31, 33}));
  EXPECT_EQ(last, (8 * 2 + 4) * 4);

  EXPECT_THAT(load_error({tensors[1]}, parameters),
              HasSubstr("lack the tensor a.qkv_proj.weight of shape [8, 2], which"));
  EXPECT_THAT(load_error({{"a.qkv_proj.weight", "F32", {4, 2}, 0}, tensors[1]}, parameters),
              HasSubstr("config.json makes its shape [8, 2]"));
}

TEST_F(WeightLoader, LoadsLargeTensorsInTasksAndReportsEveryByte) {
  const int64_t rows = 3001;
  const int64_t columns = 257;
  RecordingParameter a(rows, columns, {{{rows, columns}, {0, rows}, {0, columns}, 0}});
  RecordingParameter b(5, 1, {{{5}, {0, 5}, {0, 1}, 0}});
  ParameterMap parameters;
  parameters.add("a", a);
  parameters.add("b", b);
  parameters.ignore([](std::string_view name) { return name == "c.inv_freq"; });
  const Checkpoint files = checkpoint({{"a.weight", "F32", {rows, columns}, 1},
                                       {"c.inv_freq", "F32", {8}, 0},
                                       {"b.weight", "F32", {5}, 7}});
  int64_t last = 0;
  load_weights(files, parameters, pool_, [&](std::string_view, int64_t done, int64_t total) {
    EXPECT_GE(done, last);
    EXPECT_EQ(total, (rows * columns + 8 + 5) * 4);
    last = done;
  });
  EXPECT_EQ(last, (rows * columns + 8 + 5) * 4);
  EXPECT_EQ(a.values, counting(1, static_cast<size_t>(rows * columns)));
  EXPECT_EQ(b.values, counting(7, 5));
}

TEST_F(WeightLoader, ReadsTensorsAtAnyAddress) {
  for (size_t padding = 0; padding < 5; ++padding) {
    RecordingParameter a(3, 2, {{{3, 3}, {0, 3}, {1, 3}, 0}});
    RecordingParameter b(2, 1, {{{2}, {0, 2}, {0, 1}, 0}});
    ParameterMap parameters;
    parameters.add("a", a);
    parameters.add("b", b);
    load_weights(
        checkpoint({{"a.weight", "BF16", {3, 3}, 0}, {"b.weight", "F32", {2}, 5}}, padding),
        parameters, pool_, {});
    EXPECT_EQ(a.values, (std::vector<float>{1, 2, 4, 5, 7, 8}));
    EXPECT_EQ(b.values, (std::vector<float>{5, 6}));
  }
}

TEST_F(WeightLoader, AShardOfPaddingAloneReadsNothing) {
  RecordingParameter a(2, 3, {{{4, 3}, {4, 4}, {0, 3}, 0}});
  ParameterMap parameters;
  parameters.add("a", a);
  load_weights(checkpoint({{"a.weight", "F32", {4, 3}, 0}}), parameters, pool_, {});
  EXPECT_EQ(a.values, std::vector<float>(6, -1.0f));
  EXPECT_EQ(a.num_finished, 1);
}

TEST_F(WeightLoader, RefusesWhatDoesNotMatch) {
  RecordingParameter qk(6, 2, {{{4, 2}, {0, 4}, {0, 2}, 0}, {{2, 2}, {0, 2}, {0, 2}, 4}});
  ParameterMap parameters(kPacked);
  parameters.add("a.qk_proj", qk);
  const CountingTensor q{"a.q_proj.weight", "F32", {4, 2}};
  const CountingTensor k{"a.k_proj.weight", "F32", {2, 2}};
  EXPECT_EQ(load_error({q, k}, parameters), "no error");

  const std::string missing = load_error({q}, parameters);
  EXPECT_THAT(missing, HasSubstr("lack the tensor a.k_proj.weight of shape [2, 2]"));

  const std::string extra = load_error({q, k, {"a.v_proj.weight", "F32", {2}}}, parameters);
  EXPECT_THAT(extra, HasSubstr("model.safetensors"));
  EXPECT_THAT(extra, HasSubstr("a.v_proj.weight"));
  EXPECT_THAT(extra, HasSubstr("no part of the model"));
  EXPECT_THAT(load_error({q, k, {"a.qk_proj.weight", "F32", {6, 2}}}, parameters),
              HasSubstr("a.qk_proj.weight"));

  const std::string shape = load_error({q, {"a.k_proj.weight", "F32", {2, 3}}}, parameters);
  EXPECT_THAT(shape, HasSubstr("model.safetensors"));
  EXPECT_THAT(shape, HasSubstr("a.k_proj.weight is [2, 3] F32"));
  EXPECT_THAT(shape, HasSubstr("shape [2, 2]"));
  EXPECT_THAT(load_error({q, {"a.k_proj.weight", "F32", {4}}}, parameters), HasSubstr("[4] F32"));

  const std::string dtype = load_error({q, {"a.k_proj.weight", "I32", {2, 2}}}, parameters);
  EXPECT_THAT(dtype, HasSubstr("a.k_proj.weight is [2, 2] I32"));
  EXPECT_THAT(dtype, HasSubstr("expected F32, F16 or BF16, as it is dense."));
  EXPECT_THAT(load_error({q, {"a.k_proj.weight", "F64", {2, 2}}}, parameters),
              HasSubstr("[2, 2] F64; expected F32, F16 or BF16."));
}

TEST_F(WeightLoader, DummyWeightsDependOnSeedNameAndPlaceAlone) {
  const int64_t rows = 300;
  const int64_t columns = 1001;
  const auto fill = [&](uint64_t seed, const std::string& module, IndexRange r, IndexRange c,
                        int threads) {
    RecordingParameter parameter(r.size(), c.size(), {{{rows, columns}, r, c, 0}});
    ParameterMap parameters;
    parameters.add(module, parameter);
    ThreadPool pool(threads);
    fill_dummy_weights(parameters, seed, pool, {});
    return parameter.values;
  };
  const auto whole = fill(1, "a", {0, rows}, {0, columns}, 1);
  EXPECT_EQ(fill(1, "a", {0, rows}, {0, columns}, 3), whole);
  EXPECT_NE(fill(2, "a", {0, rows}, {0, columns}, 1), whole);
  EXPECT_NE(fill(1, "b", {0, rows}, {0, columns}, 1), whole);
  const auto shard = fill(1, "a", {100, 200}, {333, 777}, 2);
  for (int64_t row = 0; row < 100; ++row) {
    for (int64_t column = 0; column < 444; ++column) {
      ASSERT_EQ(shard[static_cast<size_t>(row * 444 + column)],
                whole[static_cast<size_t>((100 + row) * columns + 333 + column)]);
    }
  }
  double sum = 0.0;
  double squares = 0.0;
  for (const float value : whole) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const auto n = static_cast<double>(whole.size());
  EXPECT_NEAR(sum / n, 0.0, 2e-4);
  EXPECT_NEAR(std::sqrt(squares / n), 0.02, 2e-4);
}

TEST_F(WeightLoader, DummyNormsAreOneAndProgressEndsAtTheWhole) {
  RecordingParameter norm(5, 1, {{{5}, {0, 5}, {0, 1}, 0}}, DummyInit::kOnes);
  RecordingParameter a(4, 3, {{{4, 3}, {0, 4}, {0, 3}, 0}});
  ParameterMap parameters;
  parameters.add("norm", norm);
  parameters.add("a", a);
  int64_t last = 0;
  fill_dummy_weights(parameters, 0, pool_, [&](std::string_view, int64_t done, int64_t total) {
    EXPECT_EQ(total, (5 + 12) * 4);
    last = done;
  });
  EXPECT_EQ(last, (5 + 12) * 4);
  EXPECT_EQ(norm.values, std::vector<float>(5, 1.0f));
}

// Keeps the bytes that it is given, of whole rows.
class BytesParameter final : public Parameter {
 public:
  BytesParameter(int64_t columns, std::vector<ParameterTensor> tensors)
      : columns_(columns), tensors_(std::move(tensors)), bytes_(tensors_.size()) {}

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return 0; }
  void store(const ParameterSlice& slice) override {
    const std::lock_guard lock(mutex_);
    const size_t row_bytes = static_cast<size_t>(columns_) * size_of(slice.source.dtype());
    const auto* from = static_cast<const char*>(slice.source.raw());
    bytes_[slice.tensor].append(from, row_bytes * static_cast<size_t>(slice.source.dim(0)));
  }
  template <typename T>
  std::vector<T> values(size_t tensor) const {
    std::vector<T> values(bytes_[tensor].size() / sizeof(T));
    std::memcpy(values.data(), bytes_[tensor].data(), bytes_[tensor].size());
    return values;
  }

 private:
  int64_t columns_;
  std::vector<ParameterTensor> tensors_;
  std::vector<std::string> bytes_;
  std::mutex mutex_;
};

TEST_F(WeightLoader, DummyFloat8TimesItsScaleIsLikeTheOthersAndIntegersAreBits) {
  const std::vector<ParameterPart> part{{{500, 40}, {0, 500}, {0, 40}}};
  BytesParameter parameter(40, {{.leaf = "weight", .dtypes = {DType::kFloat8E4M3}, .parts = part},
                                {.leaf = "weight_scale",
                                 .dtypes = dense_dtypes(),
                                 .parts = part,
                                 .dummy_init = DummyInit::kConstant,
                                 .dummy_value = kDummyBound / 448},
                                {.leaf = "qweight", .dtypes = {DType::kInt32}, .parts = part}});
  ParameterMap parameters;
  parameters.add("a", parameter);
  fill_dummy_weights(parameters, 1, pool_, {});
  const auto numbers = parameter.values<Float8E4M3>(0);
  const auto scales = parameter.values<float>(1);
  const auto words = parameter.values<uint32_t>(2);
  ASSERT_EQ(numbers.size(), 20000u);
  double squares = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const double value = static_cast<double>(static_cast<float>(numbers[i])) * scales[i];
    squares += value * value;
  }
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.02, 5e-4);
  int ones = 0;
  for (const uint32_t word : words) ones += std::popcount(word);
  EXPECT_NEAR(ones, 20000 * 16, 3000);
}

}  // namespace
}  // namespace quire
