// The decoder step in one kernel with adapters, against a plain decoder on the host in float.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/decoder_step/decoder_step_cuda_test_util.h"

namespace quire::ops {
namespace {

using namespace decoder_step_test;  // NOLINT(google-build-using-namespace)

// Of a slot: the rank of each part of each matrix, not padded; 0: it has none there.
struct AdapterShape {
  std::array<std::vector<int>, kNumDecoderMatrices> ranks;
  bool vectors = false;  // of factors and added biases

  // The same rank everywhere.
  static AdapterShape of(int rank, bool vectors = false) {
    return {{{{rank, rank, rank}, {rank}, {rank, rank}, {rank}}}, vectors};
  }
};

// Adapters in slots, on the host and on the device.
class Slots {
 public:
  Slots(const ModelShape& shape, const std::vector<AdapterShape>& adapters, std::mt19937& random)
      : shape_(shape), random_(random) {
    // The layers' matrices are in any order, with an entry of somebody else's between.
    places_.resize(to_size(shape.num_layers * kNumDecoderMatrices));
    std::iota(places_.begin(), places_.end(), 1);
    std::shuffle(places_.begin(), places_.end(), random);
    stride_ = std::ssize(places_) + 2;
    std::vector<CudaLoraLayer> table(adapters.size() * to_size(stride_));
    for (size_t slot = 0; slot < adapters.size(); ++slot) {
      parts_.emplace_back();
      for (size_t i = 0; i < places_.size(); ++i) {
        const auto matrix = static_cast<DecoderMatrix>(i % kNumDecoderMatrices);
        CudaLoraLayer& entry = table[slot * to_size(stride_) + to_size(places_[i])];
        parts_.back().push_back(make_entry(matrix, adapters[slot], entry));
      }
    }
    table_ = std::make_unique<DeviceArray<CudaLoraLayer>>(table);
    device_places_ = std::make_unique<DeviceArray<int32_t>>(places_);
  }

  CudaDecoderLora args() const {
    return {.rows = {},
            .max_rank = max_rank_,
            .table = table_->data(),
            .slot_stride = stride_,
            .places = device_places_->data()};
  }

  // What a slot makes of a matrix's outputs, in float.
  void adapt(int slot, int layer, DecoderMatrix matrix, const Values& in, const Values& bias,
             Values& out) const {
    size_t first = 0;
    for (const Part& part : parts_[to_size(slot)][to_size(layer * kNumDecoderMatrices + matrix)]) {
      const Values t = part.rank == 0 ? Values() : multiply(in, part.a, {});
      for (size_t n = 0; n < part.width; ++n) {
        const float of_base = bias.empty() ? 0.0f : bias[first + n];
        float value = out[first + n] - of_base;
        for (size_t r = 0; r < t.size(); ++r) {
          value += part.scale * t[r] * part.b[n * t.size() + r];
        }
        if (!part.factor.empty()) value *= part.factor[n];
        out[first + n] = value + of_base + (part.added.empty() ? 0.0f : part.added[n]);
      }
      first += part.width;
    }
  }

 private:
  struct Part {
    size_t width = 0;
    int rank = 0;
    float scale = 0;
    Values a, b, factor, added;
  };

  std::vector<size_t> widths_of(DecoderMatrix matrix) const {
    const size_t kv = to_size(shape_.num_kv_heads * shape_.head_dim);
    switch (matrix) {
      case kQkvMatrix:
        return {to_size(shape_.attention_width()), kv, kv};
      case kGateUpMatrix:
        return {to_size(shape_.inner), to_size(shape_.inner)};
      default:
        return {to_size(shape_.hidden)};
    }
  }
  int inputs_of(DecoderMatrix matrix) const {
    return matrix == kOutputMatrix ? shape_.attention_width()
           : matrix == kDownMatrix ? shape_.inner
                                   : shape_.hidden;
  }

  std::vector<Part> make_entry(DecoderMatrix matrix, const AdapterShape& adapter,
                               CudaLoraLayer& entry) {
    const std::vector<size_t> widths = widths_of(matrix);
    const auto k = to_size(inputs_of(matrix));
    std::vector<Part> parts;
    Values padded_a;
    for (size_t i = 0; i < widths.size(); ++i) {
      Part part;
      part.width = widths[i];
      part.rank = adapter.ranks[to_size(matrix)][i];
      const auto rank = to_size(part.rank);
      if (part.rank > 0) {
        const int padded_rank = round_up(part.rank, kLoraRankStep);
        max_rank_ = std::max(max_rank_, padded_rank);
        const auto padded = to_size(padded_rank);
        part.scale = 0.5f + 0.25f * static_cast<float>(i);
        const float of_inputs = 1 / std::sqrt(static_cast<float>(k));
        part.a = rounded(shape_.dtype, random_values(rank * k, random_, of_inputs));
        const float of_ranks = 0.7f / std::sqrt(static_cast<float>(rank));
        part.b = rounded(shape_.dtype, random_values(part.width * rank, random_, of_ranks));
        padded_a.insert(padded_a.end(), part.a.begin(), part.a.end());
        padded_a.resize(padded_a.size() + (padded - rank) * k);
        Values padded_b;
        for (size_t n = 0; n < part.width; ++n) {
          const float* const row = &part.b[n * rank];
          padded_b.insert(padded_b.end(), row, row + rank);
          padded_b.resize(padded_b.size() + padded - rank);
        }
        entry.b[i] = keep(padded_b);
        entry.first_rank[i] = entry.ranks;
        entry.rank[i] = static_cast<int32_t>(padded);
        entry.scale[i] = part.scale;
        entry.ranks += entry.rank[i];
      }
      if (adapter.vectors) add_vectors(part, i, entry);
      parts.push_back(std::move(part));
    }
    entry.a = keep(padded_a);
    return parts;
  }
  // Factors where there is a matrix; added biases of every other part, also where there is none.
  void add_vectors(Part& part, size_t index, CudaLoraLayer& entry) {
    if (part.rank > 0) {
      part.factor = random_values(part.width, random_, 0.2f);
      for (float& factor : part.factor) factor += 1;
      entry.factor[index] = keep_vector(part.factor);
    }
    if (index % 2 == 0) {
      part.added = random_values(part.width, random_, 0.3f);
      entry.added[index] = keep_vector(part.added);
    }
  }
  const void* keep(const Values& values) {
    arrays_.push_back(std::make_unique<DeviceElements>(shape_.dtype, values));
    return arrays_.back()->data();
  }
  const float* keep_vector(const Values& values) {
    vectors_.push_back(std::make_unique<DeviceArray<float>>(values));
    return vectors_.back()->data();
  }

  ModelShape shape_;
  std::mt19937& random_;
  std::vector<int32_t> places_;
  int64_t stride_ = 0;
  int max_rank_ = kLoraRankStep;
  std::vector<std::vector<std::vector<Part>>> parts_;  // [slot][layer, matrix][part]
  std::vector<std::unique_ptr<DeviceElements>> arrays_;
  std::vector<std::unique_ptr<DeviceArray<float>>> vectors_;
  std::unique_ptr<DeviceArray<CudaLoraLayer>> table_;
  std::unique_ptr<DeviceArray<int32_t>> device_places_;
};

// Which rows have which slot, -1: none, as a step's arrays say it.
class RowSlots {
 public:
  explicit RowSlots(size_t rows) : items_(rows), num_items_(1), rows_(rows) {}

  void set(const std::vector<int>& slots) {
    std::vector<int32_t> order(slots.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int32_t row) { return slots[to_size(row)]; });
    std::vector<LoraItem> items;
    for (size_t i = 0; i < order.size(); ++i) {
      const int32_t slot = slots[to_size(order[i])];
      if (items.empty() || items.back().slot != slot) {
        items.push_back({slot, static_cast<int32_t>(i), 0, 0});
      }
      ++items.back().count;
    }
    num_items_.upload({static_cast<int32_t>(items.size())});
    items.resize(slots.size(), {0, 1 << 20, kLoraItemRows, 0});  // not looked at
    items_.upload(items);
    rows_.upload(order);
  }

  CudaLoraRows args() {
    const auto rows = static_cast<int64_t>(rows_.size());
    return {.items = items_.data(),
            .num_items = num_items_.data(),
            .max_items = rows,
            .rows = rows_.data(),
            .first_row = 0,
            .num_rows = rows};
  }

 private:
  DeviceArray<LoraItem> items_;
  DeviceArray<int32_t> num_items_;
  DeviceArray<int32_t> rows_;
};

class DecoderStepLoraCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && stream().compute_capability() < 90) {
      GTEST_SKIP() << "The GPU is older than compute capability 9.0.";
    }
  }

  // `row_slots`: of each row. A context of 0 is padding.
  void check_step(const ModelShape& shape, const std::vector<int>& context_lens,
                  const std::vector<AdapterShape>& adapters, const std::vector<int>& row_slots,
                  const std::vector<int>& query_lens = {}) {
    SCOPED_TRACE("hidden " + std::to_string(shape.hidden) + " inner " +
                 std::to_string(shape.inner) + " heads of " + std::to_string(shape.head_dim) +
                 " rows " + std::to_string(row_slots.size()) + " adapters " +
                 std::to_string(adapters.size()) + " first rank " +
                 std::to_string(adapters[0].ranks[0][0]) +
                 (adapters[0].vectors ? " with factors and biases" : ""));
    Model model(shape, context_lens, random(), query_lens);
    DeviceModel device(model, /*has_adapters=*/true);
    Slots slots(shape, adapters, random());
    RowSlots rows(row_slots.size());
    CudaDecoderStep args = device.args();
    args.lora = slots.args();
    args.lora.rows = rows.args();
    ASSERT_TRUE(cuda::supports_decoder_step(stream(), args));
    rows.set(row_slots);
    check_rows(model, device, slots, row_slots, args);
    check_repeats(device, args);
  }

  void check_rows(Model& model, DeviceModel& device, const Slots& slots,
                  const std::vector<int>& row_slots, const CudaDecoderStep& args) {
    device.out().poison();
    cuda::decoder_step(stream(), args);
    synchronize();
    model.set_adapters([&](int row, int layer, DecoderMatrix matrix, const Values& in,
                           const Values& bias, Values& out) {
      const int slot = row_slots[to_size(row)];
      if (slot >= 0) slots.adapt(slot, layer, matrix, in, bias, out);
    });
    expect_rows(model, device, kTolerance);
    for (int i = 0; i < model.shape().num_layers; ++i) {
      check_cache(device.keys(i).download(), model.layers()[to_size(i)].keys);
      check_cache(device.values(i).download(), model.layers()[to_size(i)].values);
    }
  }
  static void expect_rows(Model& model, DeviceModel& device, double tolerance) {
    const int hidden = model.shape().hidden;
    const Values out = device.out().download();
    for (int row = 0; row < model.rows(); ++row) {
      if (model.context(row) == 0) continue;  // padding
      const auto first = out.begin() + int64_t{row} * hidden;
      EXPECT_TRUE(is_close(Values(first, first + hidden), model.run(row), tolerance))
          << "row " << row;
    }
  }
  // What has not been written is NaN, and stays NaN.
  static void check_cache(Values actual, Values expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::isnan(expected[i])) continue;
      ASSERT_TRUE(std::isnan(actual[i])) << "was written at " << i;
      actual[i] = expected[i] = 0;
    }
    EXPECT_TRUE(is_close(actual, expected, kTolerance));
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
      device.out().poison();
      cuda::decoder_step(stream(), other);
      synchronize();
      EXPECT_EQ(device.out().download_bytes(), first);
    }
  }

  static constexpr double kTolerance = 2e-2;
};

const ModelShape kSmall = {.hidden = 512, .inner = 1024};

TEST_F(DecoderStepLoraCudaTest, TakesRanksUpTo64) {
  for (const int rank : {1, 8, 16, 17, 33, 48, 64}) {
    check_step(kSmall, {130}, {AdapterShape::of(rank)}, {0});
  }
}

TEST_F(DecoderStepLoraCudaTest, TakesAdaptersOfSomeModules) {
  const auto check = [this](const AdapterShape& adapter) {
    check_step(kSmall, {70}, {adapter}, {0});
    check_step(kSmall, {70, 3}, {adapter, AdapterShape::of(20)}, {0, 1});
  };
  check({{{{16, 0, 8}, {0}, {0, 0}, {0}}}});
  check({{{{0, 0, 0}, {0}, {0, 40}, {5}}}});
  check({{{{0, 30, 0}, {64}, {16, 0}, {0}}}});
  check({{{{64, 16, 1}, {16}, {64, 3}, {64}}}});
  check({{{{0, 0, 0}, {0}, {0, 0}, {0}}}});
}

TEST_F(DecoderStepLoraCudaTest, TakesUpToEightRowsOfSeveralSlots) {
  const std::vector<AdapterShape> adapters = {AdapterShape::of(16), AdapterShape::of(1),
                                              AdapterShape::of(64)};
  check_step(kSmall, {3, 100}, adapters, {1, -1});
  check_step(kSmall, {64, 1, 257}, adapters, {2, 2, 2});
  check_step(kSmall, {7, 500, 33, 128}, adapters, {0, -1, 1, 0});
  check_step(kSmall, {300, 1, 65, 64, 63, 999, 20, 5}, adapters, {0, 1, 2, -1, 2, 1, 0, 0});
  std::vector<AdapterShape> eight;
  for (const int rank : {64, 16, 8, 1, 64, 33, 48, 16}) eight.push_back(AdapterShape::of(rank));
  check_step(kSmall, {300, 1, 65, 64, 63, 999, 20, 5}, eight, {7, 6, 5, 4, 3, 2, 1, 0});
}

TEST_F(DecoderStepLoraCudaTest, ScalesOutputsAndAddsBiases) {
  const std::vector<AdapterShape> adapters = {
      AdapterShape::of(16, true), AdapterShape::of(5), {{{{0, 9, 0}, {0}, {7, 0}, {3}}}, true}};
  for (const bool biases : {false, true}) {
    ModelShape shape = kSmall;
    shape.biases = biases;
    check_step(shape, {90}, adapters, {0});
    check_step(shape, {64, 1, 257, 9}, adapters, {2, -1, 1, 0});
  }
}

TEST_F(DecoderStepLoraCudaTest, TakesWhatFamiliesDifferIn) {
  const std::vector<AdapterShape> adapters = {AdapterShape::of(16), AdapterShape::of(3)};
  const std::vector<int> contexts = {70, 200};
  check_step({.hidden = 512, .inner = 1024, .qk_norm = false}, contexts, adapters, {1, 0});
  check_step({.hidden = 512, .inner = 1024, .head_dim = 64, .rotary_dim = 64}, contexts, adapters,
             {0, -1});
  check_step({.hidden = 512, .inner = 1056, .qk_norm = false, .sliding_window = 100}, contexts,
             adapters, {0, 1});
  check_step({.hidden = 576, .inner = 1056, .num_heads = 7, .num_kv_heads = 1}, contexts, adapters,
             {1, 1});
}

TEST_F(DecoderStepLoraCudaTest, TakesSeveralRowsOfASequence) {
  const std::vector<AdapterShape> adapters = {AdapterShape::of(16), AdapterShape::of(64)};
  check_step(kSmall, {80, 300}, adapters, {0, 0, 0, 1, 1}, {3, 2});
  check_step(kSmall, {80, 300}, adapters, {-1, -1, -1, 1, 1}, {3, 2});
}

TEST_F(DecoderStepLoraCudaTest, TakesPaddingRows) {
  check_step(kSmall, {90, 0}, {AdapterShape::of(16)}, {0, -1});
  check_step(kSmall, {5, 130, 3, 0, 0, 0, 0, 0}, {AdapterShape::of(16), AdapterShape::of(8)},
             {1, 0, 1, -1, -1, -1, -1, -1});
}

// Some blocks have no outputs of a product.
TEST_F(DecoderStepLoraCudaTest, TakesNarrowModels) {
  const std::vector<AdapterShape> adapters = {AdapterShape::of(64), AdapterShape::of(7)};
  check_step({}, {70, 200}, adapters, {0, 1});
  check_step({.hidden = 128, .inner = 96, .num_heads = 1, .num_kv_heads = 1}, {70, 200, 3},
             adapters, {1, 0, -1});
}

// Activations come in parts, and a block has several pieces of A, and several slots of B.
TEST_F(DecoderStepLoraCudaTest, TakesWideModels) {
  const std::vector<AdapterShape> adapters = {AdapterShape::of(64), AdapterShape::of(16)};
  check_step({.hidden = 2560, .inner = 4128, .num_layers = 2}, {70, 200}, adapters, {0, 1});
  check_step({.hidden = 1024, .inner = 12288, .num_layers = 2}, {70, 200, 3, 5}, adapters,
             {0, 1, -1, 0});
  check_step({.hidden = 4096, .inner = 6144, .num_heads = 32, .num_kv_heads = 8, .num_layers = 1},
             {70, 200, 1, 2, 3, 4, 5, 6}, adapters, {0, 1, -1, 0, 1, 1, 0, 0});
}

TEST_F(DecoderStepLoraCudaTest, RunsAQwen3Of8B) {
  const ModelShape shape = {
      .hidden = 4096, .inner = 12288, .num_heads = 32, .num_kv_heads = 8, .num_layers = 2};
  for (const int rank : {16, 64}) check_step(shape, {130}, {AdapterShape::of(rank)}, {0});
}

// A row without an adapter has the bits of a step in which no row has one.
TEST_F(DecoderStepLoraCudaTest, LeavesOtherRowsAsTheyAre) {
  Model model(kSmall, {70, 200, 3}, random());
  DeviceModel device(model, /*has_adapters=*/true);
  Slots slots(kSmall, {AdapterShape::of(16)}, random());
  RowSlots rows(3);
  CudaDecoderStep args = device.args();
  cuda::decoder_step(stream(), args);
  synchronize();
  const Values base = device.out().download();
  args.lora = slots.args();
  args.lora.rows = rows.args();
  for (const int adapted : {-1, 0, 1, 2}) {
    std::vector<int> row_slots(3, -1);
    if (adapted >= 0) row_slots[to_size(adapted)] = 0;
    rows.set(row_slots);
    device.out().poison();
    cuda::decoder_step(stream(), args);
    synchronize();
    const Values out = device.out().download();
    for (int row = 0; row < 3; ++row) {
      const auto first = int64_t{row} * kSmall.hidden;
      const bool same = std::equal(out.begin() + first, out.begin() + first + kSmall.hidden,
                                   base.begin() + first);
      EXPECT_EQ(same, row != adapted) << "row " << row << " of adapter's " << adapted;
    }
  }
}

// A graph that was captured for one slot serves any.
TEST_F(DecoderStepLoraCudaTest, ReplaysWithOtherSlots) {
  Model model(kSmall, {70, 200}, random());
  DeviceModel device(model, /*has_adapters=*/true);
  Slots slots(kSmall, {AdapterShape::of(16), AdapterShape::of(64), AdapterShape::of(1)}, random());
  RowSlots rows(2);
  CudaDecoderStep args = device.args();
  args.lora = slots.args();
  args.lora.rows = rows.args();
  ASSERT_TRUE(cuda::supports_decoder_step(stream(), args));
  const auto run = [&](const std::vector<int>& row_slots, const auto& launch) {
    rows.set(row_slots);
    device.out().poison();
    launch();
    synchronize();
    return device.out().download_bytes();
  };
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check_cuda(cudaStreamBeginCapture(stream().get(), cudaStreamCaptureModeThreadLocal), "capturing");
  cuda::decoder_step(stream(), args);
  check_cuda(cudaStreamEndCapture(stream().get(), &graph), "capturing");
  check_cuda(cudaGraphInstantiate(&replay, graph, 0), "instantiating");
  for (const std::vector<int>& row_slots :
       std::vector<std::vector<int>>{{0, -1}, {1, 0}, {-1, -1}, {2, 2}, {1, 2}, {0, -1}}) {
    const auto eager = run(row_slots, [&] { cuda::decoder_step(stream(), args); });
    const auto replayed =
        run(row_slots, [&] { check_cuda(cudaGraphLaunch(replay, stream().get()), "replaying"); });
    EXPECT_EQ(replayed, eager) << row_slots[0] << ", " << row_slots[1];
  }
  check_cuda(cudaGraphExecDestroy(replay), "cleaning up");
  check_cuda(cudaGraphDestroy(graph), "cleaning up");
}

TEST_F(DecoderStepLoraCudaTest, DeclinesWhatItDoesNotTake) {
  const auto supports = [this](const ModelShape& shape, int max_rank = 16) {
    Model model(shape, {1}, random());
    DeviceModel device(model);
    CudaDecoderStep args = device.args();
    EXPECT_TRUE(cuda::supports_decoder_step(stream(), args));
    args.lora.rows.max_items = 1;
    args.lora.max_rank = max_rank;
    return cuda::supports_decoder_step(stream(), args);
  };
  EXPECT_TRUE(supports(kSmall));
  EXPECT_TRUE(supports(kSmall, 64));
  EXPECT_FALSE(supports(kSmall, 80));
  EXPECT_FALSE(supports(kSmall, 8));
  ModelShape half = kSmall;
  half.dtype = DType::kFloat16;
  EXPECT_FALSE(supports(half));
  ModelShape float8 = kSmall;
  float8.format = WeightFormat::float8();
  EXPECT_FALSE(supports(float8));
}

}  // namespace
}  // namespace quire::ops
