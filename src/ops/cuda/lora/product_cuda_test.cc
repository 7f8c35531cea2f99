// lora_linear against the separate kernels: adapters of many slots, added to a product.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"
#include "ops/cuda/lora_product_kernels.h"

namespace quire::ops {
namespace {

struct Case {
  DType dtype = DType::kBFloat16;
  int64_t k = 256;
  std::vector<int64_t> widths = {256, 128, 128};  // of the parts
  // Of each slot, the rank of its part of each of the layer's; 0: it has none.
  std::vector<std::vector<int>> ranks = {{16, 16, 16}};
  std::vector<int> order = {0, 1, 2};  // in which a slot's parts lie in its A
  // Rows of each slot, those without one first.
  std::vector<int> rows = {0, 1};
  int slot_ranks = 0;  // that a slot has room for in a part; 0: what the largest has
  bool gated = false;
  bool bias = false;
};

// A step's rows, and a layer's slots, on the device.
class Layer {
 public:
  Layer(const Case& sizes, std::mt19937& random) : sizes_(sizes) {
    std::vector<CudaLoraLayer> table(sizes.ranks.size() * kStride);
    for (size_t slot = 0; slot < sizes.ranks.size(); ++slot) {
      table[slot * kStride] = add_slot(sizes.ranks[slot], random);
    }
    table_ = std::make_unique<DeviceArray<CudaLoraLayer>>(table);
    slot_ranks_ = std::max(slot_ranks_, sizes.slot_ranks);
    add_rows(random);
  }

  const CudaLoraLayer* table() const { return table_->data(); }
  static constexpr int64_t kStride = 2;
  int64_t max_ranks() const { return slot_ranks_ * std::ssize(sizes_.widths); }
  int32_t slot_ranks() const { return slot_ranks_; }
  int64_t num_rows() const { return num_rows_; }
  CudaLoraRows rows() const {
    return {.items = items_->data(),
            .num_items = num_items_->data(),
            .max_items = static_cast<int64_t>(items_->size()),
            .rows = order_->data(),
            .first_row = 0,
            .num_rows = num_rows_};
  }

 private:
  CudaLoraLayer add_slot(const std::vector<int>& ranks, std::mt19937& random) {
    CudaLoraLayer layer = {};
    for (const int at : sizes_.order) {
      const auto part = static_cast<size_t>(at);
      if (part >= sizes_.widths.size()) continue;
      const int rank = round_up(ranks[part], kLoraRankStep);
      layer.first_rank[part] = layer.ranks;
      layer.rank[part] = rank;
      layer.scale[part] = 0.5f + static_cast<float>(part);
      layer.ranks += rank;
      slot_ranks_ = std::max(slot_ranks_, rank);
      layer.b[part] = keep(sizes_.widths[part] * rank, 0.2f, random);
    }
    layer.a = keep(layer.ranks * sizes_.k, 0.1f, random);
    return layer;
  }
  const void* keep(int64_t count, float scale, std::mt19937& random) {
    arrays_.push_back(std::make_unique<DeviceElements>(
        sizes_.dtype, random_values(static_cast<size_t>(count), random, scale)));
    return arrays_.back()->data();
  }
  // In any order, gathered slot by slot.
  void add_rows(std::mt19937& random) {
    num_rows_ = std::accumulate(sizes_.rows.begin(), sizes_.rows.end(), int64_t{0});
    std::vector<int32_t> order(static_cast<size_t>(num_rows_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<LoraItem> items;
    int32_t next = 0;
    for (size_t group = 0; group < sizes_.rows.size(); ++group) {
      for (int left = sizes_.rows[group]; left > 0;) {
        const int count = std::min(left, kLoraItemRows);
        items.push_back({static_cast<int32_t>(group) - 1, next, count, 0});
        next += count;
        left -= count;
      }
    }
    num_items_ = std::make_unique<DeviceArray<int32_t>>(
        std::vector<int32_t>{static_cast<int32_t>(items.size())});
    items.push_back({0, 1 << 20, kLoraItemRows, 0});  // not looked at
    items_ = std::make_unique<DeviceArray<LoraItem>>(items);
    order_ = std::make_unique<DeviceArray<int32_t>>(order);
  }

  Case sizes_;
  std::vector<std::unique_ptr<DeviceElements>> arrays_;
  std::unique_ptr<DeviceArray<CudaLoraLayer>> table_;
  std::unique_ptr<DeviceArray<LoraItem>> items_;
  std::unique_ptr<DeviceArray<int32_t>> num_items_;
  std::unique_ptr<DeviceArray<int32_t>> order_;
  int64_t num_rows_ = 0;
  int32_t slot_ranks_ = 0;
};

class LoraProductCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && stream().compute_capability() != 90) {
      GTEST_SKIP() << "The kernel is for GPUs of compute capability 9.0.";
    }
  }
  void run(const Case& sizes);
};

void LoraProductCudaTest::run(const Case& sizes) {
  const Layer layer(sizes, random());
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + ", k " + std::to_string(sizes.k) + ", rows " +
               std::to_string(layer.num_rows()) + ", slots " + std::to_string(sizes.ranks.size()) +
               ", first rank " + std::to_string(sizes.ranks[0][0]) +
               (sizes.gated ? ", gated" : "") + (sizes.bias ? ", with a bias" : ""));
  const int64_t rows = layer.num_rows();
  const int64_t n = std::accumulate(sizes.widths.begin(), sizes.widths.end(), int64_t{0});
  const int64_t x_stride = sizes.k + 8;
  const int64_t out_width = sizes.gated ? n / 2 : n;
  const int64_t out_stride = out_width + 8;
  const auto elements = [&](int64_t count, float scale) {
    return random_values(static_cast<size_t>(count), random(), scale);
  };
  DeviceElements x(sizes.dtype, elements(rows * x_stride, 1.0f));
  DeviceElements weight(sizes.dtype, elements(n * sizes.k, 0.1f));
  DeviceArray<float> bias(elements(n, 1.0f));
  DeviceElements out(sizes.dtype, static_cast<size_t>(rows * out_stride));
  DeviceArray<float> sums(static_cast<size_t>(rows * n));
  const auto num_slots = static_cast<int32_t>(sizes.ranks.size());
  const int64_t tiles_bytes = lora_tiles_bytes(num_slots, layer.slot_ranks());
  constexpr int64_t kFlagBytes = 256;
  DeviceArray<std::byte> room(static_cast<size_t>(kFlagBytes + tiles_bytes));

  CudaLoraLinear args = {.product = {.dtype = sizes.dtype,
                                     .in = x.data(),
                                     .in_stride = x_stride,
                                     .weight = {.format = sizes.dtype, .data = weight.data()},
                                     .rows = rows,
                                     .n = n,
                                     .k = sizes.k,
                                     .bias = sizes.bias ? bias.data() : nullptr,
                                     .out = out.data(),
                                     .out_stride = out_stride,
                                     .out_dtype = sizes.dtype,
                                     .silu_and_mul = sizes.gated},
                         .rows = layer.rows(),
                         .layers = layer.table(),
                         .layer_stride = Layer::kStride,
                         .max_ranks = layer.max_ranks(),
                         .num_parts = static_cast<int>(sizes.widths.size()),
                         .first_output = {},
                         .num_outputs = {},
                         .tiles = {.memory = room.data() + kFlagBytes,
                                   .num_slots = num_slots,
                                   .slot_ranks = layer.slot_ranks(),
                                   .inputs_are_there = reinterpret_cast<uint32_t*>(room.data())}};
  for (size_t part = 0; part < sizes.widths.size(); ++part) {
    args.num_outputs[part] = sizes.widths[part];
    if (part > 0) args.first_output[part] = args.first_output[part - 1] + sizes.widths[part - 1];
  }

  // The oracle: the base's product, then the adapters in kernels of their own, in float32.
  const int splits = lora_splits(rows, sizes.k);
  DeviceArray<float> t(static_cast<size_t>(splits * rows * layer.max_ranks()));
  CudaLinear plain = args.product;
  plain.silu_and_mul = false;
  plain.out = sums.data();
  plain.out_stride = n;
  plain.out_dtype = DType::kFloat32;
  cuda::linear(stream(), plain);
  cuda::lora_shrink(stream(), {.dtype = sizes.dtype,
                               .rows = args.rows,
                               .layers = args.layers,
                               .layer_stride = args.layer_stride,
                               .x = x.data(),
                               .x_stride = x_stride,
                               .k = sizes.k,
                               .max_ranks = args.max_ranks,
                               .splits = splits,
                               .pairs = true,
                               .t = t.data()});
  CudaLoraExpand expand = {.dtype = sizes.dtype,
                           .out_dtype = DType::kFloat32,
                           .rows = args.rows,
                           .layers = args.layers,
                           .layer_stride = args.layer_stride,
                           .t = t.data(),
                           .max_ranks = args.max_ranks,
                           .splits = splits,
                           .pairs = true,
                           .num_parts = args.num_parts,
                           .first_output = {},
                           .num_outputs = {},
                           .silu_and_mul = false,
                           .gate_up = nullptr,
                           .gate_up_stride = 0,
                           .bias = args.product.bias,
                           .out = sums.data(),
                           .out_stride = n};
  std::ranges::copy(args.first_output, expand.first_output);
  std::ranges::copy(args.num_outputs, expand.num_outputs);
  cuda::lora_expand(stream(), expand);
  synchronize();
  std::vector<float> expected = sums.download();
  if (sizes.gated) {
    for (int64_t i = 0; i < rows * out_width; ++i) {
      const float* row = &expected[static_cast<size_t>(i / out_width * n)];
      const float gate = row[i % out_width];
      const float up = row[i % out_width + out_width];
      // Rows become shorter, so that no number is overwritten before it is read.
      expected[static_cast<size_t>(i)] = gate / (1 + std::exp(-gate)) * up;
    }
  }

  const auto run_step = [&] {
    cuda::lora_begin(stream(), {.memory = room.data(), .bytes = kFlagBytes + tiles_bytes});
    cuda::lora_linear(stream(), args);
  };
  const auto compare = [&](const std::string& what) {
    const std::vector<float> actual = out.download();
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row * out_stride);
      const auto wanted = static_cast<size_t>(row * out_width);
      const auto width = static_cast<size_t>(out_width);
      // Outputs are rounded, and t.
      const double tolerance = sizes.dtype == DType::kBFloat16 ? 6e-3 : 8e-4;
      EXPECT_TRUE(is_close(std::span(actual).subspan(at, width),
                           std::span(expected).subspan(wanted, width), tolerance))
          << what << ", row " << row;
      if (HasFailure()) return;
      for (size_t i = at + width; i < at + static_cast<size_t>(out_stride); ++i) {
        ASSERT_TRUE(std::isnan(actual[i])) << what << ": wrote behind row " << row;
      }
    }
  };
  out.poison();
  room.poison();
  run_step();
  synchronize();
  ASSERT_NO_FATAL_FAILURE(compare("the first time"));
  ASSERT_FALSE(HasFailure());
  const std::vector<std::byte> bytes = out.download_bytes();

  // A graph of two such steps, which runs several times.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream().get(), cudaStreamCaptureModeThreadLocal), "capturing");
  run_step();
  run_step();
  check_cuda(cudaStreamEndCapture(stream().get(), &graph), "capturing");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "making a graph");
  for (int turn = 0; turn < 3; ++turn) {
    out.poison();
    check_cuda(cudaGraphLaunch(executable, stream().get()), "launching a graph");
    check_cuda(cudaGraphLaunch(executable, stream().get()), "launching a graph");
    synchronize();
    ASSERT_TRUE(out.download_bytes() == bytes) << "another run gives other bits";
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

constexpr DType kDTypes[] = {DType::kBFloat16, DType::kFloat16};

TEST_F(LoraProductCudaTest, AddsToTheRowsOfEachSlot) {
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {64, 128, 1000, 4096}) {
      run({.dtype = dtype, .k = k});
      run({.dtype = dtype,
           .k = k,
           .ranks = {{8, 8, 8}, {1, 0, 33}, {0, 0, 0}},
           .order = {1, 0, 2},
           .rows = {3, 1, 17, 2},
           .bias = true});
      run({.dtype = dtype, .k = k, .ranks = {{16, 16, 16}, {64, 64, 64}}, .rows = {5, 0, 3}});
      run({.dtype = dtype,
           .k = k,
           .widths = {512},
           .ranks = std::vector<std::vector<int>>(8, {16}),
           .rows = {0, 8, 8, 8, 8, 8, 8, 8, 8}});
    }
  }
}

TEST_F(LoraProductCudaTest, TakesAnyNumberOfRows) {
  for (const DType dtype : kDTypes) {
    for (const int rows : {1, 7, 8, 9, 16, 17, 31, 32, 33, 50, 64}) {
      run({.dtype = dtype,
           .k = 512,
           .ranks = {{16, 16, 16}, {48, 16, 32}},
           .order = {2, 1, 0},
           .rows = {rows / 4, rows - rows / 4 - rows / 3, rows / 3},
           .slot_ranks = 64});
      run({.dtype = dtype,
           .k = 512,
           .widths = {192, 192},
           .ranks = {{16, 16}, {48, 32}},
           .rows = {rows / 4, rows - rows / 4 - rows / 3, rows / 3},
           .gated = true,
           .bias = rows % 2 == 0});
    }
  }
}

TEST_F(LoraProductCudaTest, TakesAnyRank) {
  for (const DType dtype : kDTypes) {
    for (const int rank : {1, 16, 40, 64, 128, 256, 512}) {
      const std::vector<std::vector<int>> ranks = {{rank, 16, 0}, {16, rank, rank}};
      run({.dtype = dtype, .k = 320, .ranks = ranks, .rows = {2, 30, 32}});
      run({.dtype = dtype,
           .k = 320,
           .widths = {1000, 1000},
           .ranks = ranks,
           .rows = {2, 40, 20},
           .gated = true});
    }
    // Of some slots in use.
    std::vector<std::vector<int>> many(32, {64, 32, 16});
    std::vector<int> rows(33, 0);
    rows[0] = 1;
    rows[3] = 20;
    rows[20] = 11;
    rows[32] = 32;
    run({.dtype = dtype, .k = 320, .ranks = many, .rows = rows});
  }
}

TEST_F(LoraProductCudaTest, TakesTheShapesOfModels) {
  const DType dtype = DType::kBFloat16;
  const std::vector<int> eight = {0, 8, 8, 8, 8, 8, 8, 8, 8};
  for (const int rank : {16, 64}) {
    const std::vector<std::vector<int>> ranks(8, {rank, rank, rank});
    run({.dtype = dtype, .k = 4096, .widths = {4096, 1024, 1024}, .ranks = ranks, .rows = eight});
    run({.dtype = dtype, .k = 4096, .widths = {4096}, .ranks = ranks, .rows = eight});
    run({.dtype = dtype, .k = 12288, .widths = {4096}, .ranks = ranks, .rows = eight});
    run({.dtype = dtype,
         .k = 4096,
         .widths = {12288, 12288},
         .ranks = ranks,
         .rows = eight,
         .gated = true});
  }
  // Wide tiles.
  for (const int rows : {40, 64}) {
    run({.dtype = dtype,
         .k = 512,
         .widths = {13056, 13056},
         .ranks = {{16, 80}, {64, 16}},
         .rows = {3, 7, rows - 10},
         .gated = true});
    run({.dtype = dtype,
         .k = 512,
         .widths = {25600, 640},
         .ranks = {{16, 80}, {64, 16}},
         .rows = {3, 7, rows - 10}});
  }
}

TEST_F(LoraProductCudaTest, LeavesOthersToTheSeparateKernels) {
  CudaLoraLinear args = {
      .product = {.dtype = DType::kBFloat16,
                  .in = nullptr,
                  .in_stride = 256,
                  .weight = {.format = DType::kBFloat16},
                  .rows = 64,
                  .n = 512,
                  .k = 256,
                  .bias = nullptr,
                  .out = nullptr,
                  .out_stride = 512,
                  .out_dtype = DType::kBFloat16,
                  .silu_and_mul = false},
      .rows = {.items = nullptr,
               .num_items = nullptr,
               .max_items = 3,
               .rows = nullptr,
               .first_row = 0,
               .num_rows = 64},
      .layers = nullptr,
      .layer_stride = 1,
      .max_ranks = 32,
      .num_parts = 2,
      .first_output = {0, 256},
      .num_outputs = {256, 256},
      .tiles = {.memory = &args, .num_slots = 8, .slot_ranks = 16, .inputs_are_there = nullptr}};
  const auto takes = [&](const auto& change) {
    CudaLoraLinear changed = args;
    change(changed);
    return cuda::lora_linear_takes(stream(), changed);
  };
  EXPECT_TRUE(takes([](CudaLoraLinear&) {}));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.product.rows = to.rows.num_rows = 65; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.product.rows = 32; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.rows.first_row = 64; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.product.dtype = DType::kFloat16; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.product.out_dtype = DType::kFloat32; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.num_outputs[1] = 0; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.num_outputs[0] = 250; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.first_output[1] = 224; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.tiles.memory = nullptr; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.tiles.num_slots = 9; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.tiles.slot_ranks = 32; }));
  EXPECT_FALSE(takes([](CudaLoraLinear& to) { to.product.k = 252; }));
}

}  // namespace
}  // namespace quire::ops
