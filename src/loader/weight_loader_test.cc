#include "loader/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/temporary_folder_test_util.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A parameter that keeps what it is given as float32 [rows, columns].
class RecordingParameter final : public Parameter {
 public:
  RecordingParameter(int64_t rows, int64_t columns, std::vector<ParameterPart> parts,
                     DummyInit init = DummyInit::kUniform)
      : values(static_cast<size_t>(rows * columns), -1.0f),
        columns_(columns),
        parts_(std::move(parts)),
        init_(init) {}

  const std::vector<ParameterPart>& parts() const override { return parts_; }
  DummyInit dummy_init() const override { return init_; }
  size_t bytes() const override { return values.size() * sizeof(float); }
  void store(int64_t first_row, const Tensor& source) override {
    EXPECT_EQ(source.dim(1), columns_);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(source.raw()) % size_of(source.dtype()), 0u);
    for (int64_t row = 0; row < source.dim(0); ++row) {
      for (int64_t column = 0; column < columns_; ++column) {
        values.at(static_cast<size_t>((first_row + row) * columns_ + column)) =
            value_of(source, row, column);
      }
    }
  }

  std::vector<float> values;

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
  std::vector<ParameterPart> parts_;
  DummyInit init_;
};

// A tensor to be written to a file: 1, 2, 3, ... from `first` on.
struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  float first = 0.0f;
};

void append(std::string& data, const void* value, size_t size) {
  data.append(static_cast<const char*>(value), size);
}

// One file in the safetensors format; `padding` spaces make its data start at any alignment.
std::string safetensors(const std::vector<FileTensor>& tensors, size_t padding = 0) {
  std::string header = "{";
  std::string data;
  for (const FileTensor& tensor : tensors) {
    const size_t begin = data.size();
    int64_t elements = 1;
    std::string shape;
    for (const int64_t dim : tensor.shape) {
      elements *= dim;
      shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    }
    for (int64_t i = 0; i < elements; ++i) {
      const float value = tensor.first + static_cast<float>(i);
      const BFloat16 brain(value);
      const Float16 half(value);
      if (tensor.dtype == "F32") append(data, &value, 4);
      if (tensor.dtype == "BF16") append(data, &brain, 2);
      if (tensor.dtype == "F16") append(data, &half, 2);
      if (tensor.dtype == "I32") append(data, &value, 4);
    }
    header += (header.size() > 1 ? "," : "") + ("\"" + tensor.name) + "\":{\"dtype\":\"" +
              tensor.dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
              std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}" + std::string(padding, ' ');
  const uint64_t length = header.size();
  std::string file;
  append(file, &length, 8);
  return file + header + data;
}

class WeightLoader : public ::testing::Test {
 protected:
  Checkpoint checkpoint(const std::vector<FileTensor>& tensors, size_t padding = 0) {
    const std::string bytes = safetensors(tensors, padding);
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << bytes;
    return Checkpoint::open(folder_);
  }

  std::string load_error(const std::vector<FileTensor>& tensors, const ParameterMap& parameters) {
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
  RecordingParameter bias(2, 1, {{{4}, {2, 4}, {0, 1}, 0}});
  ParameterMap parameters(kPacked);
  parameters.add("a.qk_proj.weight", qk);
  parameters.add("a.o_proj.weight", o);
  parameters.add("a.o_proj.bias", bias);
  load_weights(checkpoint({{"a.k_proj.weight", "F32", {2, 2}, 10},
                           {"a.o_proj.bias", "F16", {4}, 30},
                           {"a.o_proj.weight", "BF16", {2, 4}, 20},
                           {"a.q_proj.weight", "F32", {4, 2}, 0}}),
               parameters, pool_, {});
  EXPECT_EQ(qk.values, (std::vector<float>{4, 5, 6, 7, 12, 13}));
  EXPECT_EQ(o.values, (std::vector<float>{21, 22, 25, 26}));
  EXPECT_EQ(bias.values, (std::vector<float>{32, 33}));
}

TEST_F(WeightLoader, TakesThePartsOfOneTensorFromBelowEachOther) {
  // The second of two ranks: the lower half of each of three parts of 4, 2 and 2 rows.
  const std::vector<ParameterPart> parts = {
      {{4, 2}, {2, 4}, {0, 2}, 0}, {{2, 2}, {1, 2}, {0, 2}, 2}, {{2, 2}, {1, 2}, {0, 2}, 3}};
  RecordingParameter qkv(4, 2, parts);
  RecordingParameter bias(2, 1, {{{2}, {1, 2}, {0, 1}, 0}, {{2}, {1, 2}, {0, 1}, 1}});
  ParameterMap parameters;
  parameters.add("a.qkv_proj.weight", qkv);
  parameters.add("a.gate_up_proj.bias", bias);
  const std::vector<FileTensor> tensors = {{"a.qkv_proj.weight", "F32", {8, 2}, 0},
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
  parameters.add("a.weight", a);
  parameters.add("b.weight", b);
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
    parameters.add("a.weight", a);
    parameters.add("b.weight", b);
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
  parameters.add("a.weight", a);
  load_weights(checkpoint({{"a.weight", "F32", {4, 3}, 0}}), parameters, pool_, {});
  EXPECT_EQ(a.values, std::vector<float>(6, -1.0f));
}

TEST_F(WeightLoader, RefusesWhatDoesNotMatch) {
  RecordingParameter qk(6, 2, {{{4, 2}, {0, 4}, {0, 2}, 0}, {{2, 2}, {0, 2}, {0, 2}, 4}});
  ParameterMap parameters(kPacked);
  parameters.add("a.qk_proj.weight", qk);
  const FileTensor q{"a.q_proj.weight", "F32", {4, 2}};
  const FileTensor k{"a.k_proj.weight", "F32", {2, 2}};
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
  EXPECT_THAT(dtype, HasSubstr("F32, F16 or BF16"));
}

TEST_F(WeightLoader, DummyWeightsDependOnSeedNameAndPlaceAlone) {
  const int64_t rows = 300;
  const int64_t columns = 1001;
  const auto fill = [&](uint64_t seed, const std::string& name, IndexRange r, IndexRange c,
                        int threads) {
    RecordingParameter parameter(r.size(), c.size(), {{{rows, columns}, r, c, 0}});
    ParameterMap parameters;
    parameters.add(name, parameter);
    ThreadPool pool(threads);
    fill_dummy_weights(parameters, seed, pool, {});
    return parameter.values;
  };
  const auto whole = fill(1, "a.weight", {0, rows}, {0, columns}, 1);
  EXPECT_EQ(fill(1, "a.weight", {0, rows}, {0, columns}, 3), whole);
  EXPECT_NE(fill(2, "a.weight", {0, rows}, {0, columns}, 1), whole);
  EXPECT_NE(fill(1, "b.weight", {0, rows}, {0, columns}, 1), whole);
  const auto shard = fill(1, "a.weight", {100, 200}, {333, 777}, 2);
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
  parameters.add("norm.weight", norm);
  parameters.add("a.weight", a);
  int64_t last = 0;
  fill_dummy_weights(parameters, 0, pool_, [&](std::string_view, int64_t done, int64_t total) {
    EXPECT_EQ(total, (5 + 12) * 4);
    last = done;
  });
  EXPECT_EQ(last, (5 + 12) * 4);
  EXPECT_EQ(norm.values, std::vector<float>(5, 1.0f));
}

}  // namespace
}  // namespace quire
