// The decoder step's kernel with several rows of a sequence, and with layers' inputs handed out,
// against a plain decoder on the host in float.
#include <cstdint>
#include <string>
#include <vector>

#include "ops/cuda/decoder_step/decoder_step_cuda_test_util.h"

namespace quire::ops {
namespace {

using namespace decoder_step_test;  // NOLINT(google-build-using-namespace)

// Sequences of a step, and how many rows each has.
struct Sequences {
  std::vector<int> context_lens;
  std::vector<int> query_lens;
};

class DecoderStepRowsCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && stream().compute_capability() < 90) {
      GTEST_SKIP() << "The GPU is older than compute capability 9.0.";
    }
  }

  // Outputs, what is handed out, and all of the caches.
  void check_step(const ModelShape& shape, const Sequences& sequences,
                  const std::vector<int>& tapped = {}) {
    SCOPED_TRACE(std::string(name_of(shape.dtype)) + " hidden " + std::to_string(shape.hidden) +
                 " heads " + std::to_string(shape.num_heads) + " of " +
                 std::to_string(shape.head_dim) + " context " +
                 std::to_string(sequences.context_lens[0]) + " sequences " +
                 std::to_string(sequences.context_lens.size()));
    Model model(shape, sequences.context_lens, random(), sequences.query_lens);
    DeviceModel device(model);
    CudaDecoderStep args = device.args();
    DeviceElements taps(shape.dtype, std::max<size_t>(1, to_size(model.rows()) * tapped.size() *
                                                             to_size(shape.hidden)));
    args.taps.count = static_cast<int>(tapped.size());
    std::copy(tapped.begin(), tapped.end(), args.taps.layers);
    args.taps.out = taps.data();
    ASSERT_TRUE(cuda::supports_decoder_step(stream(), args));
    device.out().poison();
    taps.poison();
    cuda::decoder_step(stream(), args);
    synchronize();
    const double tolerance = shape.dtype == DType::kBFloat16 ? 2e-2 : 4e-3;
    const Values out = device.out().download();
    const Values handed_out = taps.download();
    const auto part = [&](const Values& from, int64_t row) {
      const auto first = from.begin() + row * shape.hidden;
      return Values(first, first + shape.hidden);
    };
    const auto num_taps = static_cast<int64_t>(tapped.size());
    for (int row = 0; row < model.rows(); ++row) {
      EXPECT_TRUE(is_close(part(out, row), model.run(row), tolerance)) << "row " << row;
      for (int64_t i = 0; i < num_taps; ++i) {
        const Values& input = model.inputs()[to_size(tapped[to_size(i)])];
        EXPECT_TRUE(is_close(part(handed_out, row * num_taps + i), input, tolerance))
            << "row " << row << " tap " << i;
      }
    }
    check_caches(model, device, tolerance);
    check_repeats(device, args);
  }

 private:
  // What the step had no business to write, too: it is NaN and stays NaN.
  static void check_caches(const Model& model, DeviceModel& device, double tolerance) {
    const auto check_cache = [&](Values actual, Values expected) {
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        if (!std::isnan(expected[i])) continue;
        ASSERT_TRUE(std::isnan(actual[i])) << "was written at " << i;
        actual[i] = expected[i] = 0;
      }
      EXPECT_TRUE(is_close(actual, expected, tolerance));
    };
    for (int i = 0; i < model.shape().num_layers; ++i) {
      SCOPED_TRACE("layer " + std::to_string(i));
      check_cache(device.keys(i).download(), model.layers()[to_size(i)].keys);
      check_cache(device.values(i).download(), model.layers()[to_size(i)].values);
    }
  }

  void check_repeats(DeviceModel& device, const CudaDecoderStep& args) {
    const auto first = device.out().download_bytes();
    for (int i = 0; i < 5; ++i) {
      device.out().poison();
      for (int j = 0; j < 3; ++j) cuda::decoder_step(stream(), args);
      synchronize();
      EXPECT_EQ(device.out().download_bytes(), first);
    }
    // However activations are read.
    for (const DecoderStepReads reads : {DecoderStepReads::kRowByRow, DecoderStepReads::kAhead}) {
      CudaDecoderStep other = args;
      other.reads = reads;
      ASSERT_TRUE(cuda::supports_decoder_step(stream(), other));
      for (int i = 0; i < 2; ++i) {
        device.out().poison();
        cuda::decoder_step(stream(), other);
        synchronize();
        EXPECT_EQ(device.out().download_bytes(), first);
      }
    }
  }
};

TEST_F(DecoderStepRowsCudaTest, TakesSeveralRowsOfASequence) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    for (int rows = 2; rows <= 8; ++rows) {
      check_step({.dtype = dtype}, {{rows}, {rows}});  // nothing is in the cache
      check_step({.dtype = dtype}, {{100 + rows}, {rows}});
    }
  }
}

// Rows before and behind the end of a block, a tile and a chunk.
TEST_F(DecoderStepRowsCudaTest, TakesRowsAcrossChunksAndBlocks) {
  for (const int context : {15, 17, 19, 63, 65, 68, 127, 128, 129, 131, 134, 257, 259, 641, 1000}) {
    check_step({}, {{context}, {5}});
    check_step({.num_heads = 8, .num_kv_heads = 2}, {{context}, {5}});
    check_step({.head_dim = 64, .rotary_dim = 64, .block_size = 32}, {{context}, {5}});
  }
  for (const int context : {2047, 2049, 2051, 4099, 20000}) {
    check_step({.num_layers = 1}, {{context}, {5}});
  }
}

TEST_F(DecoderStepRowsCudaTest, TakesSeveralSequences) {
  check_step({}, {{90, 7, 300}, {1, 4, 3}});
  check_step({}, {{5, 130, 64, 2}, {2, 2, 2, 2}});
  check_step({}, {{3000, 1}, {7, 1}});
}

TEST_F(DecoderStepRowsCudaTest, TakesGroupsOfAnySize) {
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int, int>>{
           {2, 2}, {3, 1}, {4, 1}, {5, 1}, {7, 1}, {8, 1}, {12, 2}, {16, 8}}) {
    check_step({.num_heads = heads, .num_kv_heads = kv_heads}, {{131}, {5}});
    check_step({.num_heads = heads, .num_kv_heads = kv_heads}, {{70}, {8}});
  }
}

// A row sees less of the beginning than the one before it.
TEST_F(DecoderStepRowsCudaTest, TakesWindowsOfRows) {
  for (const int64_t window : {1, 2, 3, 5, 100, 128, 1900}) {
    for (const int context : {6, 130, 133, 300, 2100}) {
      check_step({.num_layers = 2, .sliding_window = window}, {{context}, {5}});
    }
  }
}

TEST_F(DecoderStepRowsCudaTest, TakesWideModelsAndOtherWeights) {
  const ModelShape large = {
      .hidden = 4096, .inner = 12288, .num_heads = 32, .num_kv_heads = 8, .num_layers = 2};
  check_step(large, {{131}, {5}});
  check_step(large, {{700}, {8}});
  for (const WeightFormat format :
       {WeightFormat::float8(), WeightFormat::float8(kFloat8Block),
        WeightFormat::integers(4, kTileInputs), WeightFormat::integers(8, kTileInputs)}) {
    check_step({.hidden = 512, .format = format}, {{130}, {5}}, {0, 2});
  }
}

TEST_F(DecoderStepRowsCudaTest, HandsOutTheInputsOfLayers) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_step({.dtype = dtype}, {{130}, {1}}, {0});
    check_step({.dtype = dtype, .num_layers = 5}, {{130}, {1}}, {1, 2, 4});
    check_step({.dtype = dtype}, {{130, 7}, {1, 1}}, {2});
    check_step({.dtype = dtype, .num_layers = 8}, {{9, 70}, {5, 3}}, {0, 1, 2, 3, 4, 5, 6, 7});
  }
  check_step({.hidden = 4096, .inner = 6144, .num_heads = 32, .num_kv_heads = 8, .num_layers = 3},
             {{131}, {5}}, {0, 1, 2});
}

// Behind the last sequence's rows.
TEST_F(DecoderStepRowsCudaTest, TakesPaddingRows) {
  Model model({}, {70, 30}, random(), {4, 3});
  DeviceModel device(model);
  cuda::decoder_step(stream(), device.args());
  synchronize();
  const Values whole = device.out().download();
  // Without the second sequence, its rows are padding.
  DeviceArray<int64_t> slots(std::vector<int64_t>{
      model.slot(0, 66), model.slot(1, 67), model.slot(2, 68), model.slot(3, 69), -1, -1, -1});
  CudaDecoderStep args = device.args();
  args.num_seqs = 1;
  args.slot_mapping = slots.data();
  device.out().poison();
  cuda::decoder_step(stream(), args);
  synchronize();
  const Values out = device.out().download();
  const auto end = 4 * int64_t{model.shape().hidden};
  EXPECT_EQ(Values(out.begin(), out.begin() + end), Values(whole.begin(), whole.begin() + end));
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
}

}  // namespace
}  // namespace quire::ops
