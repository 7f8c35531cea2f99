// The decoder step in one kernel, against a plain decoder on the host in float.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "ops/cuda/decoder_step/decoder_step_cuda_test_util.h"
#include "ops/cuda/decoder_step/decoder_step_ranks_cuda_test_util.h"

namespace quire::ops {
namespace {

using namespace decoder_step_test;  // NOLINT(google-build-using-namespace)

class DecoderStepCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && stream().compute_capability() < 90) {
      GTEST_SKIP() << "The GPU is older than compute capability 9.0.";
    }
  }

  void check_step(const ModelShape& shape, const std::vector<int>& context_lens) {
    SCOPED_TRACE(std::string(name_of(shape.dtype)) + weights_of(shape) + " hidden " +
                 std::to_string(shape.hidden) + " inner " + std::to_string(shape.inner) +
                 " heads " + std::to_string(shape.num_heads) + " of " +
                 std::to_string(shape.head_dim) + " rows " + std::to_string(context_lens.size()) +
                 " context " + std::to_string(context_lens[0]));
    Model model(shape, context_lens, random());
    DeviceModel device(model);
    ASSERT_TRUE(cuda::supports_decoder_step(stream(), device.args()));
    device.out().poison();
    cuda::decoder_step(stream(), device.args());
    synchronize();
    const double tolerance = shape.dtype == DType::kBFloat16 ? 2e-2 : 4e-3;
    const Values out = device.out().download();
    for (int row = 0; row < model.rows(); ++row) {
      if (model.context(row) == 0) continue;  // padding
      const auto first = out.begin() + int64_t{row} * shape.hidden;
      EXPECT_TRUE(is_close(Values(first, first + shape.hidden), model.run(row), tolerance))
          << "row " << row;
    }
    check_caches(model, device, tolerance);
    check_repeats(device);
  }

  // With float8 weights, of both kinds of scales.
  void check_float8(ModelShape shape, const std::vector<int>& context_lens) {
    for (const int64_t group_size : {int64_t{0}, kFloat8Block}) {
      shape.format = WeightFormat::float8(group_size);
      check_step(shape, context_lens);
    }
  }

  // With integers of 4 and 8 bits, with and without zero points.
  void check_integers(ModelShape shape, const std::vector<int>& context_lens) {
    for (const int bits : {4, 8}) {
      for (const bool has_offsets : {false, true}) {
        shape.format = WeightFormat::integers(bits, kTileInputs, has_offsets);
        check_step(shape, context_lens);
      }
    }
  }

  static std::string weights_of(const ModelShape& shape) {
    const WeightFormat format = shape.weights();
    if (format.is_dense()) return "";
    const char* const kind = format.kind == WeightKind::kFloat8 ? ", float8"
                             : format.kind == WeightKind::kInt4 ? ", int4"
                                                                : ", int8";
    return std::string(kind) + (format.has_offsets ? " with offsets" : "") + ", groups of " +
           std::to_string(format.group_size) + ",";
  }

 private:
  // All of the caches: what the step had no business to write, too.
  static void check_caches(const Model& model, DeviceModel& device, double tolerance) {
    for (int i = 0; i < model.shape().num_layers; ++i) {
      const Layer& layer = model.layers()[to_size(i)];
      check_cache(device.keys(i).download(), layer.keys, tolerance, i);
      check_cache(device.values(i).download(), layer.values, tolerance, i);
    }
  }
  // What has not been written is NaN, and stays NaN.
  static void check_cache(Values actual, Values expected, double tolerance, int layer) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::isnan(expected[i])) continue;
      ASSERT_TRUE(std::isnan(actual[i])) << "layer " << layer << " was written at " << i;
      actual[i] = expected[i] = 0;
    }
    EXPECT_TRUE(is_close(actual, expected, tolerance)) << "layer " << layer;
  }

  void check_repeats(DeviceModel& device) {
    const auto first = device.out().download_bytes();
    for (int i = 0; i < 5; ++i) {
      device.out().poison();
      for (int j = 0; j < 3; ++j) cuda::decoder_step(stream(), device.args());
      synchronize();
      EXPECT_EQ(device.out().download_bytes(), first);
    }
    // However activations are read.
    for (const DecoderStepReads reads : {DecoderStepReads::kRowByRow, DecoderStepReads::kAhead}) {
      CudaDecoderStep args = device.args();
      args.reads = reads;
      ASSERT_TRUE(cuda::supports_decoder_step(stream(), args));
      for (int i = 0; i < 2; ++i) {
        device.out().poison();
        cuda::decoder_step(stream(), args);
        synchronize();
        EXPECT_EQ(device.out().download_bytes(), first);
      }
    }
  }
};

TEST_F(DecoderStepCudaTest, RunsAQwen3) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_step({.dtype = dtype}, {1});
    check_step({.dtype = dtype}, {2});
    check_step({.dtype = dtype, .hidden = 1024, .inner = 3072, .num_heads = 16, .num_kv_heads = 8},
               {130});
  }
}

TEST_F(DecoderStepCudaTest, TakesContextsAcrossChunksAndBlocks) {
  for (const int context : {15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 640, 1000}) {
    check_step({}, {context});
    check_step({.head_dim = 64, .rotary_dim = 64, .block_size = 32}, {context});
  }
  check_step({.num_layers = 2, .block_size = 256}, {1100});
}

// A chunk is twice as long from 2,049 tokens on, four times from 4,097 on, and so on.
TEST_F(DecoderStepCudaTest, TakesContextsOfLongerChunks) {
  for (const int context : {2047, 2048, 2049, 4097, 20000}) {
    check_step({.num_layers = 1}, {context});
    check_step({.head_dim = 64, .rotary_dim = 64, .num_layers = 1, .block_size = 32}, {context});
  }
  check_step({.num_layers = 1}, {2049, 3, 4097, 2048});
}

TEST_F(DecoderStepCudaTest, TakesManyPiecesOfAttentionABlock) {
  check_step({.hidden = 1024, .num_heads = 16, .num_kv_heads = 8, .num_layers = 2},
             {3584, 3583, 3000, 3521, 1, 3584, 130, 3457});
  check_step({.hidden = 1024, .num_heads = 32, .num_kv_heads = 32, .num_layers = 2},
             {1025, 2048, 700, 64, 1100, 128, 2000, 5});
  check_step({.hidden = 1024, .num_heads = 40, .num_kv_heads = 5, .num_layers = 1}, {300, 3584});
}

TEST_F(DecoderStepCudaTest, TakesWindowsOfManyChunks) {
  for (const int64_t window : {1900, 2047}) {
    check_step({.num_layers = 2, .sliding_window = window}, {5000});
    check_step({.num_layers = 2, .sliding_window = window}, {5000, 1899, 2048});
  }
}

TEST_F(DecoderStepCudaTest, TakesUpToEightRows) {
  check_step({}, {3, 100});
  check_step({}, {64, 1, 257});
  check_step({.hidden = 512, .inner = 1536}, {7, 500, 33, 128});
  check_step({.head_dim = 64, .rotary_dim = 64}, {1, 2, 3, 4, 5});
  check_step({}, {300, 1, 65, 64, 63, 999, 20});
  check_step({.hidden = 1024, .inner = 1056}, {80, 17, 600, 256, 1, 128, 129, 511});
}

TEST_F(DecoderStepCudaTest, TakesPaddingRows) {
  check_step({}, {90, 0});
  check_step({}, {5, 130, 3, 0, 0, 0, 0, 0});
}

TEST_F(DecoderStepCudaTest, TakesWhatFamiliesDifferIn) {
  const std::vector<int> contexts{70, 200};
  check_step({.qk_norm = false}, contexts);                  // Llama
  check_step({.qk_norm = false, .biases = true}, contexts);  // Qwen2, and biases elsewhere too
  check_step({.qk_norm = false, .sliding_window = 100}, contexts);  // Mistral
  check_step({.sliding_window = 1}, contexts);
  check_step({.rotary_dim = 64}, contexts);
  check_step({.num_heads = 7, .num_kv_heads = 1}, contexts);
  check_step({.num_heads = 2, .num_kv_heads = 2}, contexts);
  check_step({.num_heads = 16, .num_kv_heads = 2, .head_dim = 64, .rotary_dim = 64}, contexts);
}

TEST_F(DecoderStepCudaTest, TakesWideModels) {
  const std::vector<int> contexts{70, 200};
  check_step({.hidden = 2048, .inner = 1024, .num_layers = 2}, contexts);
  check_step({.hidden = 2560, .inner = 4128, .num_layers = 2}, contexts);
  check_step({.hidden = 4096, .inner = 6144, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
             {70, 200, 1, 2, 3, 4, 5, 6});
  check_step({.dtype = DType::kFloat16,
              .hidden = 3584,
              .inner = 512,
              .num_heads = 28,
              .num_kv_heads = 4,
              .num_layers = 1},
             {77});
}

// A block's share of a product is then many times what the ring of weights holds.
TEST_F(DecoderStepCudaTest, TakesProductsLongerThanTheRing) {
  check_step({.hidden = 1024, .inner = 12288, .num_layers = 2}, {70});
  check_step({.hidden = 1024, .inner = 12288, .num_layers = 2}, {70, 200, 3, 5});
  check_step({.hidden = 2560, .inner = 9728, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
             {70, 200, 3});
}

TEST_F(DecoderStepCudaTest, RunsAQwen3Of8B) {
  check_step({.hidden = 4096, .inner = 12288, .num_heads = 32, .num_kv_heads = 8, .num_layers = 2},
             {130});
}

TEST_F(DecoderStepCudaTest, RunsAQwen3OfFloat8) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_float8({.dtype = dtype, .hidden = 512}, {1});
    check_float8({.dtype = dtype, .hidden = 512}, {2});
    check_float8(
        {.dtype = dtype, .hidden = 1024, .inner = 3072, .num_heads = 16, .num_kv_heads = 8}, {130});
  }
}

TEST_F(DecoderStepCudaTest, TakesUpToEightRowsOfFloat8) {
  check_float8({.hidden = 512}, {3, 100});
  check_float8({.hidden = 512, .biases = true}, {64, 1, 257});
  check_float8({.hidden = 512, .inner = 1536}, {7, 500, 33, 128});
  check_float8({.hidden = 512, .num_heads = 8, .head_dim = 64, .rotary_dim = 64}, {1, 2, 3, 4, 5});
  check_float8({.hidden = 512}, {300, 1, 65, 64, 63, 999, 20});
  check_float8({.dtype = DType::kFloat16, .hidden = 1024, .inner = 1536},
               {80, 17, 600, 256, 1, 128, 129, 511});
  check_float8({.hidden = 1024, .inner = 3072, .num_heads = 16, .num_kv_heads = 8},
               {5, 130, 3, 0, 0, 7, 0, 0});
}

TEST_F(DecoderStepCudaTest, TakesAwkwardSizesOfFloat8) {
  const std::vector<int> contexts{70, 200, 1};
  const auto with_output_scales = [&](ModelShape shape) {
    shape.format = WeightFormat::float8();
    check_step(shape, {130});
    check_step(shape, contexts);
  };
  with_output_scales({.hidden = 384, .inner = 640, .num_heads = 3, .num_kv_heads = 1});
  with_output_scales({.hidden = 2176, .inner = 1152, .num_heads = 7, .num_kv_heads = 1});
  with_output_scales({.dtype = DType::kFloat16, .hidden = 128, .inner = 4224, .biases = true});
  check_float8({.hidden = 1536, .inner = 2560, .num_heads = 12, .biases = true}, {130});
  check_float8({.hidden = 1536, .inner = 2560, .num_heads = 12, .biases = true}, contexts);
  check_float8({.dtype = DType::kFloat16,
                .hidden = 3584,
                .inner = 512,
                .num_heads = 28,
                .num_kv_heads = 4,
                .num_layers = 1},
               {77});
}

// The smallest numbers that there are, most of them subnormal.
TEST_F(DecoderStepCudaTest, TakesTheSmallestFloat8) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_float8({.dtype = dtype, .hidden = 512, .num_layers = 2, .most_code = 7}, {20});
    check_float8({.dtype = dtype, .hidden = 512, .num_layers = 2, .most_code = 1}, {20, 3});
  }
}

TEST_F(DecoderStepCudaTest, TakesContextsBesideFloat8) {
  check_float8({.hidden = 512, .num_layers = 2, .sliding_window = 100}, {1000});
  check_float8({.hidden = 512, .num_layers = 1}, {2049, 3, 4097, 2048});
  check_float8({.hidden = 1024, .num_heads = 16, .num_kv_heads = 8, .num_layers = 2},
               {3584, 3583, 3000, 3521, 1, 3584, 130, 3457});
}

TEST_F(DecoderStepCudaTest, TakesProductsOfFloat8LongerThanTheRing) {
  check_float8({.hidden = 1024, .inner = 12288, .num_layers = 2}, {70, 200, 3, 5});
  check_float8({.hidden = 2560, .inner = 9728, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
               {70, 200, 3});
  check_float8({.hidden = 4096, .inner = 6144, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
               {70, 200, 1, 2, 3, 4, 5, 6});
}

TEST_F(DecoderStepCudaTest, RunsAQwen3Of8BOfFloat8) {
  check_float8(
      {.hidden = 4096, .inner = 12288, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1}, {130});
}

TEST_F(DecoderStepCudaTest, RunsAQwen3OfIntegers) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_integers({.dtype = dtype, .hidden = 512}, {1});
    check_integers({.dtype = dtype, .hidden = 512}, {2});
    check_integers(
        {.dtype = dtype, .hidden = 1024, .inner = 3072, .num_heads = 16, .num_kv_heads = 8}, {130});
  }
}

TEST_F(DecoderStepCudaTest, TakesUpToEightRowsOfIntegers) {
  check_integers({.hidden = 512}, {3, 100});
  check_integers({.hidden = 512, .biases = true}, {64, 1, 257});
  check_integers({.hidden = 512, .inner = 1536}, {7, 500, 33, 128});
  check_integers({.hidden = 512, .num_heads = 8, .head_dim = 64, .rotary_dim = 64},
                 {1, 2, 3, 4, 5});
  check_integers({.dtype = DType::kFloat16, .hidden = 1024, .inner = 1536},
                 {80, 17, 600, 256, 1, 128, 129, 511});
  check_integers({.hidden = 1024, .inner = 3072, .num_heads = 16, .num_kv_heads = 8},
                 {5, 130, 3, 0, 0, 7, 0, 0});
}

TEST_F(DecoderStepCudaTest, TakesAwkwardSizesOfIntegers) {
  const std::vector<int> contexts{70, 200, 1};
  check_integers({.hidden = 384, .inner = 640, .num_heads = 3, .num_kv_heads = 1}, contexts);
  check_integers({.hidden = 2176, .inner = 1152, .num_heads = 7, .num_kv_heads = 1}, contexts);
  check_integers({.dtype = DType::kFloat16, .hidden = 128, .inner = 4224, .biases = true}, {130});
  ModelShape shape = {.hidden = 512, .num_layers = 2, .sliding_window = 100};
  for (const int bits : {4, 8}) {
    shape.format = WeightFormat::integers(bits, 0);
    check_step(shape, {1000});
  }
  shape.format = WeightFormat::integers(4, kTileInputs, /*has_offsets=*/true);
  shape.format->is_unsigned = true;
  check_step(shape, contexts);
}

TEST_F(DecoderStepCudaTest, TakesProductsOfIntegersLongerThanTheRing) {
  check_integers({.hidden = 1024, .inner = 12288, .num_layers = 2}, {70, 200, 3, 5});
  check_integers(
      {.hidden = 2560, .inner = 9728, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
      {70, 200, 3});
  check_integers(
      {.hidden = 4096, .inner = 6144, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
      {70, 200, 1, 2, 3, 4, 5, 6});
}

TEST_F(DecoderStepCudaTest, RunsAQwen3Of8BOfIntegers) {
  check_integers(
      {.hidden = 4096, .inner = 12288, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1}, {130});
}

// The shapes of one layer that ranks are tried with.
std::vector<ModelShape> shapes_of_ranks() {
  const ModelShape dense = {.num_layers = 1, .biases = true};
  ModelShape float8 = dense;
  float8.hidden = 512;
  float8.format = WeightFormat::float8();
  ModelShape in_blocks = float8;
  in_blocks.format = WeightFormat::float8(kFloat8Block);
  ModelShape integers = float8;
  integers.format = WeightFormat::integers(4, kTileInputs);
  return {dense, float8, in_blocks, integers};
}

TEST_F(DecoderStepCudaTest, AddsUpWhatRanksHave) {
  const auto check_rank = [this](const ModelShape& shape, const std::vector<int>& contexts,
                                 int rank) {
    SCOPED_TRACE(weights_of(shape) + " rank " + std::to_string(rank));
    Model model(shape, contexts, random());
    DeviceModel device(model);
    TwoRanks ranks(rank, shape);
    std::vector<Model::RankSums> others;
    for (int row = 0; row < model.rows(); ++row) {
      others.push_back({random_values(to_size(shape.hidden), random()),
                        random_values(to_size(shape.hidden), random())});
    }
    ranks.receive(others);
    CudaDecoderStep args = device.args();
    args.peers = ranks.words();
    ASSERT_TRUE(cuda::supports_decoder_step(stream(), args));
    device.out().poison();
    cuda::decoder_step(stream(), args);
    synchronize();
    constexpr double kTolerance = 2e-2;
    const Values out = device.out().download();
    std::vector<Model::RankSums> own(others.size());
    for (int row = 0; row < model.rows(); ++row) {
      const auto first = out.begin() + int64_t{row} * shape.hidden;
      const Values expected = model.run(row, &others[to_size(row)], &own[to_size(row)]);
      EXPECT_TRUE(is_close(Values(first, first + shape.hidden), expected, kTolerance))
          << "row " << row;
    }
    ranks.check_sent(own, kTolerance);
  };
  for (const ModelShape& shape : shapes_of_ranks()) {
    for (const int rank : {0, 1}) {
      check_rank(shape, {130}, rank);
      check_rank(shape, {3, 100, 1, 64, 65, 7, 500, 2}, rank);
    }
  }
}

// In a process of its own: the fault that ends the kernel stays.
TEST_F(DecoderStepCudaTest, EndsWhereItsGroupHas) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto wait_for_nobody = [this] {
    const ModelShape shape = {.num_layers = 1};
    Model model(shape, {5}, random());
    DeviceModel device(model);
    TwoRanks ranks(0, shape);
    ranks.abort();
    CudaDecoderStep args = device.args();
    args.peers = ranks.words();
    cuda::decoder_step(stream(), args);
    std::fprintf(stderr, "%s\n", cudaGetErrorName(cudaStreamSynchronize(stream().get())));
    std::_Exit(0);
  };
  EXPECT_EXIT(wait_for_nobody(), testing::ExitedWithCode(0), "cudaErrorLaunchFailure");
}

TEST_F(DecoderStepCudaTest, DeclinesWhatItDoesNotTake) {
  Model model({}, {1}, random());
  DeviceModel device(model);
  const auto supports = [&](auto change) {
    CudaDecoderStep args = device.args();
    change(args);
    return cuda::supports_decoder_step(stream(), args);
  };
  EXPECT_TRUE(supports([](CudaDecoderStep&) {}));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.dtype = DType::kFloat32; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.cache.dtype = DType::kFloat8E4M3; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.head_dim = 96; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.cache.block_size = 12; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.num_heads = 18; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.num_heads = 5; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.hidden = 264; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.hidden = 8192; }));
  EXPECT_FALSE(supports([](CudaDecoderStep& args) { args.inner = 500; }));
  const auto supports_float8 = [&](int64_t group_size, int64_t hidden, int64_t inner) {
    return supports([&](CudaDecoderStep& args) {
      args.weight_format = WeightFormat::float8(group_size);
      args.hidden = hidden;
      args.inner = inner;
    });
  };
  EXPECT_TRUE(supports_float8(0, 384, 640));
  EXPECT_FALSE(supports_float8(0, 384, 608));
  EXPECT_FALSE(supports_float8(0, 352, 640));
  EXPECT_TRUE(supports_float8(kFloat8Block, 512, 1536));
  EXPECT_FALSE(supports_float8(kFloat8Block, 512, 1152));
  EXPECT_FALSE(supports_float8(kFloat8Block, 640, 1536));
  EXPECT_FALSE(supports_float8(64, 512, 1536));
  const auto supports_integers = [&](int64_t group_size, int64_t hidden, int64_t inner) {
    return supports([&](CudaDecoderStep& args) {
      args.weight_format = WeightFormat::integers(4, group_size);
      args.hidden = hidden;
      args.inner = inner;
    });
  };
  EXPECT_TRUE(supports_integers(128, 384, 640));
  EXPECT_TRUE(supports_integers(0, 384, 640));
  EXPECT_FALSE(supports_integers(32, 384, 640));
  EXPECT_FALSE(supports_integers(64, 384, 640));
  EXPECT_FALSE(supports_integers(128, 320, 640));
  EXPECT_FALSE(supports_integers(128, 384, 608));
  const auto with_words = [&](int64_t count) {
    return supports(
        [count](CudaDecoderStep& args) { args.peers = {.rank = 0, .size = 2, .count = count}; });
  };
  const int64_t needed = decoder_step_peer_words(model.shape().hidden, 2);
  EXPECT_TRUE(with_words(needed));
  EXPECT_FALSE(with_words(needed - 1));
}

}  // namespace
}  // namespace quire::ops
