// Parts of a decoder step in one kernel each, which hand a state on: as pipeline stages do.
#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda/decoder_step/decoder_step_cuda_test_util.h"
#include "ops/cuda/decoder_step/decoder_step_ranks_cuda_test_util.h"

namespace quire::ops {
namespace {

using namespace decoder_step_test;  // NOLINT(google-build-using-namespace)

// A state on the device: hidden, then residual, each [rows, hidden].
class State {
 public:
  explicit State(const Model& model)
      : size_(model.rows() * model.shape().hidden),
        both_(model.shape().dtype, to_size(int64_t{2} * size_)) {}

  DeviceElements& both() { return both_; }
  Values hidden() const { return part(0); }
  Values residual() const { return part(size_); }
  Values sum() const {
    Values sum = residual();
    add(sum, hidden());
    return sum;
  }

 private:
  Values part(int first) const {
    const Values both = both_.download();
    return {both.begin() + first, both.begin() + first + size_};
  }

  int size_;
  DeviceElements both_;
};

// A model's step as stages of so many layers, each with what its kernel keeps.
class Stages {
 public:
  Stages(const Model& model, const DeviceModel& device, const std::vector<int>& num_layers)
      : state_(model) {
    int first = 0;
    for (const int count : num_layers) {
      CudaDecoderStep args = device.args();
      args.layers += first;
      args.num_layers = count;
      if (first > 0) {
        args.token_ids = nullptr;
        args.embedding = state_.both().data();
      }
      first += count;
      if (first < model.shape().num_layers) {
        args.final_norm = nullptr;
        args.out = state_.both().data();
      }
      const auto bytes = to_size(cuda::decoder_step_scratch_bytes(args));
      scratch_.push_back(std::make_unique<DeviceArray<std::byte>>(bytes));
      scratch_.back()->zero();
      args.scratch = scratch_.back()->data();
      args_.push_back(args);
    }
  }

  void run(CudaStream& stream) {
    state_.both().poison();
    for (const CudaDecoderStep& args : args_) cuda::decoder_step(stream, args);
  }
  // The last that was handed over.
  const State& state() const { return state_; }

 private:
  State state_;
  std::vector<std::unique_ptr<DeviceArray<std::byte>>> scratch_;
  std::vector<CudaDecoderStep> args_;
};

class DecoderStepStagesCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && stream().compute_capability() < 90) {
      GTEST_SKIP() << "The GPU is older than compute capability 9.0.";
    }
  }

  // The outputs are those of one launch, but for what a state's two numbers leave of a float32.
  void check_stages(const ModelShape& shape, const std::vector<int>& context_lens,
                    const std::vector<int>& num_layers) {
    SCOPED_TRACE(std::string(name_of(shape.dtype)) + " hidden " + std::to_string(shape.hidden) +
                 " rows " + std::to_string(context_lens.size()) + " stages " +
                 std::to_string(num_layers.size()));
    Model model(shape, context_lens, random());
    DeviceModel device(model);
    ASSERT_TRUE(cuda::supports_decoder_step(stream(), device.args()));
    cuda::decoder_step(stream(), device.args());
    synchronize();
    const Values whole = device.out().download();
    Stages stages(model, device, num_layers);
    std::vector<std::byte> first;
    for (int i = 0; i < 3; ++i) {
      device.out().poison();
      stages.run(stream());
      synchronize();
      if (i == 0) first = device.out().download_bytes();
      EXPECT_EQ(device.out().download_bytes(), first);
    }
    // Some roundings come out otherwise: about one of the outputs' type in all.
    const double unit = shape.dtype == DType::kBFloat16 ? 0x1p-8 : 0x1p-11;
    EXPECT_TRUE(is_close(device.out().download(), whole, 2 * unit));
    EXPECT_TRUE(is_close_l2(device.out().download(), whole, unit));
    check_state(shape, stages.state());
  }

 private:
  // The residual, and what rounding took of it.
  static void check_state(const ModelShape& shape, const State& state) {
    const Values hidden = state.hidden();
    const Values residual = state.residual();
    EXPECT_NE(hidden, Values(hidden.size()));
    const float unit = shape.dtype == DType::kBFloat16 ? 0x1p-8f : 0x1p-11f;
    for (size_t i = 0; i < hidden.size(); ++i) {
      ASSERT_LE(std::abs(hidden[i]), unit * std::abs(residual[i]) + 0x1p-24f) << "element " << i;
    }
  }
};

TEST_F(DecoderStepStagesCudaTest, StagesHaveTheOutputsOfOneLaunch) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_stages({.dtype = dtype}, {130}, {1, 2});
    check_stages({.dtype = dtype}, {130}, {1, 1, 1});
    check_stages({.dtype = dtype, .num_layers = 4, .sliding_window = 100}, {1, 300, 64}, {3, 1});
    check_stages({.dtype = dtype, .biases = true}, {3, 100, 1, 64, 65, 7, 500, 2}, {2, 1});
  }
  check_stages({.hidden = 4096, .inner = 6144, .num_heads = 32, .num_kv_heads = 8, .num_layers = 2},
               {70, 200}, {1, 1});
}

TEST_F(DecoderStepStagesCudaTest, StagesTakeQuantisedLayers) {
  for (const WeightFormat format :
       {WeightFormat::float8(), WeightFormat::float8(kFloat8Block),
        WeightFormat::integers(4, kTileInputs), WeightFormat::integers(8, kTileInputs)}) {
    check_stages({.hidden = 512, .format = format}, {130, 7}, {1, 2});
  }
}

// As layers' own kernels leave it: the ranks' sum is still to be added.
TEST_F(DecoderStepStagesCudaTest, BeginsWithAnyState) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    Model model({.dtype = dtype}, {130, 5}, random());
    DeviceModel device(model);
    State state(model);
    const auto size = to_size(model.rows() * model.shape().hidden);
    state.both().upload(random_values(2 * size, random()));
    const Values sum = state.sum();
    CudaDecoderStep args = device.args();
    args.token_ids = nullptr;
    args.embedding = state.both().data();
    // What enters its first layer is the sum, too.
    DeviceElements handed_out(dtype, size);
    handed_out.poison();
    args.taps.count = 1;
    args.taps.layers[0] = 0;
    args.taps.out = handed_out.data();
    device.out().poison();
    cuda::decoder_step(stream(), args);
    synchronize();
    const Values out = device.out().download();
    const double tolerance = dtype == DType::kBFloat16 ? 2e-2 : 4e-3;
    EXPECT_TRUE(is_close(handed_out.download(), sum, tolerance));
    const auto row_of = [&](const Values& rows, int row) {
      const auto first = rows.begin() + int64_t{row} * model.shape().hidden;
      return Values(first, first + model.shape().hidden);
    };
    for (int row = 0; row < model.rows(); ++row) {
      const Values expected = normed(model.run_layers(row, row_of(sum, row)), model.final_norm());
      EXPECT_TRUE(is_close(row_of(out, row), expected, tolerance)) << "row " << row;
    }
  }
}

// The next stage adds up what the ranks have left.
TEST_F(DecoderStepStagesCudaTest, OneRankLeavesTheRest) {
  const ModelShape shape = {.num_layers = 1};
  for (const int rank : {0, 1}) {
    Model model(shape, {40}, random());
    DeviceModel device(model);
    TwoRanks ranks(rank, shape);
    const std::vector<Model::RankSums> others{{random_values(to_size(shape.hidden), random()),
                                               random_values(to_size(shape.hidden), random())}};
    ranks.receive(others);
    State state(model);
    state.both().poison();
    CudaDecoderStep args = device.args();
    args.peers = ranks.words();
    args.final_norm = nullptr;
    args.out = state.both().data();
    cuda::decoder_step(stream(), args);
    synchronize();
    EXPECT_TRUE(
        is_close(state.residual(), model.run_layers(0, model.embedded(0), &others[0]), 2e-2));
    const Values hidden = state.hidden();
    EXPECT_EQ(hidden == Values(hidden.size()), rank == 1);
  }
}

}  // namespace
}  // namespace quire::ops
