// A parameter of several tensors through the loader: a made-up 4-bit format, laid out as published
// ones are. Its numbers are packed along the input features, its zeros along the output features,
// scales and zeros belong to groups of inputs, and g_idx says which group an input is of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temporary_folder_test_util.h"
#include "loader/safetensors_test_util.h"
#include "loader/weight_loader.h"
#include "quire/error.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int64_t kPerWord = 8;  // 4-bit numbers of an int32
constexpr int64_t kInputs = 32;
constexpr int64_t kGroups = 4;

// One layer of a checkpoint, by formulas.
struct Layer {
  std::string name;
  int64_t outputs;
  int seed;

  int number(int64_t i, int64_t j) const { return static_cast<int>((i * 7 + j * 5 + seed) % 16); }
  int zero(int64_t i, int64_t group) const { return static_cast<int>((i + 3 * group + seed) % 16); }
  float scale(int64_t i, int64_t group) const {
    return 0.5f + 0.25f * static_cast<float>((i + group + seed) % 4);
  }
  int group(int64_t j) const { return static_cast<int>((j * 3 + seed) % kGroups); }
  float value(int64_t i, int64_t j) const {
    return scale(i, group(j)) * static_cast<float>(number(i, j) - zero(i, group(j)));
  }
};

template <typename Number>
int32_t packed(const Number& number) {
  uint32_t word = 0;
  for (int i = 0; i < kPerWord; ++i) word |= static_cast<uint32_t>(number(i)) << (4 * i);
  return static_cast<int32_t>(word);
}

// The layers' tensors; several layers are one, with their outputs side by side.
void add_tensors(const std::string& name, const std::vector<Layer>& layers,
                 std::vector<FileTensor>& file) {
  std::vector<int32_t> qweight, qzeros, g_idx;
  std::vector<Float16> scales;
  int64_t outputs = 0;
  for (const Layer& layer : layers) outputs += layer.outputs;
  for (int64_t j = 0; j < kInputs; j += kPerWord) {
    for (const Layer& layer : layers) {
      for (int64_t i = 0; i < layer.outputs; ++i) {
        qweight.push_back(packed([&](int64_t bit) { return layer.number(i, j + bit); }));
      }
    }
  }
  for (int64_t group = 0; group < kGroups; ++group) {
    for (const Layer& layer : layers) {
      for (int64_t i = 0; i < layer.outputs; ++i) {
        scales.push_back(Float16(layer.scale(i, group)));
        if (i % kPerWord != 0) continue;
        qzeros.push_back(packed([&](int64_t bit) { return layer.zero(i + bit, group); }));
      }
    }
  }
  for (int64_t j = 0; j < kInputs; ++j) g_idx.push_back(layers.front().group(j));
  file.push_back({name + ".qweight", "I32", {kInputs / kPerWord, outputs}, bytes_of(qweight)});
  file.push_back({name + ".scales", "F16", {kGroups, outputs}, bytes_of(scales)});
  file.push_back({name + ".qzeros", "I32", {kGroups, outputs / kPerWord}, bytes_of(qzeros)});
  file.push_back({name + ".g_idx", "I32", {kInputs}, bytes_of(g_idx)});
}

IndexRange share(int64_t total, int rank, int size) {
  return {total * rank / size, total * (rank + 1) / size};
}

IndexRange words(IndexRange numbers) {
  return {numbers.begin / kPerWord, numbers.end / kPerWord};
}

// A rank's part of fused layers: of each these outputs, and these inputs. Dequantised when all of
// its tensors have come.
class PackedParameter final : public Parameter {
 public:
  // With `shares_groups` there is one g_idx for all layers.
  PackedParameter(const std::vector<Layer>& layers, const std::vector<IndexRange>& outputs,
                  IndexRange inputs, bool shares_groups = false)
      : inputs_(inputs), shares_groups_(shares_groups) {
    ParameterTensor qweight{.leaf = "qweight", .dtypes = {DType::kInt32}, .parts = {}};
    ParameterTensor scales{.leaf = "scales", .dtypes = dense_dtypes(), .parts = {}};
    ParameterTensor qzeros{.leaf = "qzeros", .dtypes = {DType::kInt32}, .parts = {}};
    ParameterTensor g_idx{.leaf = "g_idx", .dtypes = {DType::kInt32}, .parts = {}};
    qweight.fused_along = scales.fused_along = qzeros.fused_along = FusedAlong::kColumns;
    scales.is_scales = true;
    for (size_t i = 0; i < layers.size(); ++i) {
      const int64_t n = layers[i].outputs;
      qweight.parts.push_back(
          {{kInputs / kPerWord, n}, words(inputs), outputs[i], 0, num_outputs_});
      scales.parts.push_back({{kGroups, n}, {0, kGroups}, outputs[i], 0, num_outputs_});
      qzeros.parts.push_back(
          {{kGroups, n / kPerWord}, {0, kGroups}, words(outputs[i]), 0, num_outputs_ / kPerWord});
      if (i == 0 || !shares_groups) {
        g_idx.parts.push_back({{kInputs}, inputs, {0, 1}, static_cast<int64_t>(i) * inputs.size()});
      }
      layer_of_output_.insert(layer_of_output_.end(), static_cast<size_t>(outputs[i].size()), i);
      num_outputs_ += outputs[i].size();
    }
    tensors_ = {qweight, scales, qzeros, g_idx};
    raw_ = {Matrix(inputs.size() / kPerWord, num_outputs_), Matrix(kGroups, num_outputs_),
            Matrix(kGroups, num_outputs_ / kPerWord),
            Matrix(static_cast<int64_t>(g_idx.parts.size()) * inputs.size(), 1)};
  }

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return values.size() * sizeof(float); }

  void store(const ParameterSlice& slice) override {
    Matrix& to = raw_[slice.tensor];
    for (int64_t row = 0; row < slice.source.dim(0); ++row) {
      for (int64_t column = 0; column < slice.source.dim(1); ++column) {
        to.at(slice.first_row + row, slice.first_column + column) =
            value_of(slice.source, row, column);
      }
    }
  }

  void finish(ThreadPool&) override {
    ++num_finished;
    for (int64_t i = 0; i < num_outputs_; ++i) {
      const size_t layer = shares_groups_ ? 0 : layer_of_output_[static_cast<size_t>(i)];
      for (int64_t j = 0; j < inputs_.size(); ++j) {
        const auto group =
            static_cast<int64_t>(raw_[3].at(static_cast<int64_t>(layer) * inputs_.size() + j, 0));
        if (group < 0 || group >= kGroups) throw Error("g_idx names a group that is not there.");
        const int number = number_in(raw_[0].at(j / kPerWord, i), j);
        const int zero = number_in(raw_[2].at(group, i / kPerWord), i);
        values.push_back(static_cast<float>(raw_[1].at(group, i)) *
                         static_cast<float>(number - zero));
      }
    }
  }

  std::vector<float> values;  // [outputs, inputs]
  int num_finished = 0;

 private:
  // Integers, and floats, as double, which holds both.
  struct Matrix {
    Matrix(int64_t rows, int64_t columns)
        : width(columns), elements(static_cast<size_t>(rows * columns)) {}
    double& at(int64_t row, int64_t column) {
      return elements.at(static_cast<size_t>(row * width + column));
    }
    int64_t width;
    std::vector<double> elements;
  };

  static double value_of(const Tensor& source, int64_t row, int64_t column) {
    switch (source.dtype()) {
      case DType::kInt32:
        return source.row<int32_t>(row)[column];
      case DType::kFloat16:
        return static_cast<float>(source.row<Float16>(row)[column]);
      default:
        return source.row<float>(row)[column];
    }
  }

  static int number_in(double word, int64_t index) {
    const auto bits = static_cast<uint32_t>(static_cast<int32_t>(word));
    return static_cast<int>(bits >> (4 * (index % kPerWord)) & 15);
  }

  IndexRange inputs_;
  bool shares_groups_;
  int64_t num_outputs_ = 0;
  std::vector<size_t> layer_of_output_;
  std::vector<ParameterTensor> tensors_;
  std::vector<Matrix> raw_;  // as tensors_
};

void expect_values(const PackedParameter& parameter, const std::vector<Layer>& layers,
                   const std::vector<IndexRange>& outputs, IndexRange inputs) {
  EXPECT_EQ(parameter.num_finished, 1);
  std::vector<float> expected;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (int64_t i = outputs[layer].begin; i < outputs[layer].end; ++i) {
      for (int64_t j = inputs.begin; j < inputs.end; ++j) {
        expected.push_back(layers[layer].value(i, j));
      }
    }
  }
  EXPECT_EQ(parameter.values, expected);
}

const Layer kQ{"q_proj", 32, 1};
const Layer kK{"k_proj", 16, 2};
const Layer kO{"o_proj", 16, 3};

class PackedParameterTest : public ::testing::TestWithParam<int> {
 protected:
  Checkpoint checkpoint(const std::vector<FileTensor>& tensors) {
    std::ofstream(folder_ / "model.safetensors", std::ios::binary) << to_safetensors(tensors, 1);
    return Checkpoint::open(folder_);
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  ThreadPool pool_{2};
};

INSTANTIATE_TEST_SUITE_P(Ranks, PackedParameterTest, ::testing::Values(1, 2));

TEST_P(PackedParameterTest, FusesOutputsAndSharesOutputsOrInputs) {
  const int size = GetParam();
  std::vector<FileTensor> file;
  for (const Layer& layer : {kQ, kK, kO}) add_tensors("a." + layer.name, {layer}, file);
  const Checkpoint files = checkpoint(file);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<Layer> fused{kQ, kK};
    const std::vector<IndexRange> qk_outputs{share(kQ.outputs, rank, size),
                                             share(kK.outputs, rank, size)};
    const std::vector<IndexRange> o_outputs{{0, kO.outputs}};
    const IndexRange o_inputs = share(kInputs, rank, size);
    PackedParameter qk(fused, qk_outputs, {0, kInputs});
    PackedParameter o({kO}, o_outputs, o_inputs);
    ParameterMap parameters({{"q_proj", {"qk_proj", 0}}, {"k_proj", {"qk_proj", 1}}});
    parameters.add("a.qk_proj", qk);
    parameters.add("a.o_proj", o);
    load_weights(files, parameters, pool_, {});
    expect_values(qk, fused, qk_outputs, {0, kInputs});
    expect_values(o, {kO}, o_outputs, o_inputs);
  }
}

// The checkpoint has the layers as one, with one g_idx.
TEST_P(PackedParameterTest, TakesItsShareOfATensorThatIsFusedAlongColumns) {
  const int size = GetParam();
  Layer k = kK;
  k.seed = kQ.seed + kGroups;  // the same groups
  const std::vector<Layer> fused{kQ, k};
  std::vector<FileTensor> file;
  add_tensors("a.qk_proj", fused, file);
  const Checkpoint files = checkpoint(file);
  for (int rank = 0; rank < size; ++rank) {
    const std::vector<IndexRange> outputs{share(kQ.outputs, rank, size),
                                          share(k.outputs, rank, size)};
    PackedParameter qk(fused, outputs, {0, kInputs}, /*shares_groups=*/true);
    ParameterMap parameters;
    parameters.add("a.qk_proj", qk);
    load_weights(files, parameters, pool_, {});
    expect_values(qk, fused, outputs, {0, kInputs});
  }
}

TEST_F(PackedParameterTest, WhatFinishThrowsEndsTheLoad) {
  std::vector<FileTensor> file;
  add_tensors("a.o_proj", {kO}, file);
  file.back().bytes[0] = kGroups;
  PackedParameter o({kO}, {{0, kO.outputs}}, {0, kInputs});
  ParameterMap parameters;
  parameters.add("a.o_proj", o);
  EXPECT_THROW(load_weights(checkpoint(file), parameters, pool_, {}), Error);
}

TEST_F(PackedParameterTest, ChecksEachTensor) {
  std::vector<FileTensor> good;
  add_tensors("a.o_proj", {kO}, good);
  PackedParameter o({kO}, {{0, kO.outputs}}, {0, kInputs});
  ParameterMap parameters;
  parameters.add("a.o_proj", o);
  const auto error_of = [&](size_t tensor, const auto& spoil) -> std::string {
    std::vector<FileTensor> file = good;
    spoil(file[tensor]);
    try {
      load_weights(checkpoint(file), parameters, pool_, {});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(0,
                       [](FileTensor& qweight) {
                         qweight.shape = {2, 32};
                       }),
              HasSubstr("a.o_proj.qweight is [2, 32] I32; config.json makes its shape [4, 16]"));
  EXPECT_THAT(error_of(0, [](FileTensor& qweight) { qweight.dtype = "F32"; }),
              HasSubstr("a.o_proj.qweight is [4, 16] F32; expected I32."));
  EXPECT_THAT(error_of(3, [](FileTensor& g_idx) { g_idx.name = "b.g_idx"; }), HasSubstr("b.g_idx"));
  for (const auto& scale :
       {std::pair<uint16_t, const char*>{0x7e00, "nan"}, {0x0000, "0"}, {0xfc00, "-inf"}}) {
    EXPECT_THAT(error_of(1,
                         [&](FileTensor& scales) {
                           std::memcpy(scales.bytes.data() + 2 * 5, &scale.first, sizeof(uint16_t));
                         }),
                HasSubstr(std::string("a.o_proj.scales holds ") + scale.second +
                          " at index 5; expected scales that are finite and not zero."));
  }
}

}  // namespace
}  // namespace quire
