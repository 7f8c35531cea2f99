// The adapters' branch of a CUDA graph: lora_shrink beside the base's product.
#include <memory>
#include <string>
#include <vector>

#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"

namespace quire::ops {
namespace {

constexpr DType kType = DType::kBFloat16;
constexpr int64_t kInputs = 2048;
constexpr int64_t kOutputs = 768;
constexpr int64_t kRows = 6;
constexpr int kRanks[] = {16, 64, 32};  // of the slots

size_t to_size(int64_t value) {
  return static_cast<size_t>(value);
}

// norm -> shrink, product -> expand for one matrix, as a layer has them.
class LoraBranchCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    const auto keep = [this](int64_t count, float scale) {
      arrays_.push_back(
          std::make_unique<DeviceElements>(kType, random_values(to_size(count), random(), scale)));
      return arrays_.back()->data();
    };
    raw_ = keep(kRows * kInputs, 1);
    x_ = keep(kRows * kInputs, 0);
    weight_ = keep(kOutputs * kInputs, 0.02f);
    std::vector<CudaLoraLayer> slots;
    for (const int rank : kRanks) {
      CudaLoraLayer layer = {};
      layer.a = keep(rank * kInputs, 0.02f);
      layer.b[0] = keep(kOutputs * rank, 0.2f);
      layer.ranks = layer.rank[0] = rank;
      layer.scale[0] = 0.5f;
      slots.push_back(layer);
    }
    slots_ = std::make_unique<DeviceArray<CudaLoraLayer>>(slots);
    norm_ = std::make_unique<DeviceArray<float>>(std::vector<float>(to_size(kInputs), 1.0f));
    out_ = std::make_unique<DeviceElements>(kType, to_size(kRows * kOutputs));
    t_ = std::make_unique<DeviceArray<float>>(
        to_size(lora_splits(kRows, kInputs) * kRows * kMostRanks));
    items_ = std::make_unique<DeviceArray<LoraItem>>(to_size(kRows));
    num_items_ = std::make_unique<DeviceArray<int32_t>>(1);
    std::vector<int32_t> order;
    for (int32_t row = 0; row < kRows; ++row) order.push_back(row);
    order_ = std::make_unique<DeviceArray<int32_t>>(order);
  }

  // An item for each row.
  void set_slots(const std::vector<int>& row_slots) {
    std::vector<LoraItem> items;
    for (const int slot : row_slots) {
      items.push_back({slot, static_cast<int32_t>(items.size()), 1, 0});
    }
    items_->upload(items);
    num_items_->upload({static_cast<int32_t>(items.size())});
  }

  void queue(LoraBranch* branch) {
    const CudaLoraRows rows = {.items = items_->data(),
                               .num_items = num_items_->data(),
                               .max_items = kRows,
                               .rows = order_->data(),
                               .first_row = 0,
                               .num_rows = kRows};
    const int splits = lora_splits(kRows, kInputs);
    cuda::rms_norm(stream(), {kType, raw_, nullptr, norm_->data(), 1e-6f, kRows, kInputs, x_});
    cuda::lora_shrink(stream(), {.dtype = kType,
                                 .rows = rows,
                                 .layers = slots_->data(),
                                 .layer_stride = 1,
                                 .x = x_,
                                 .x_stride = kInputs,
                                 .k = kInputs,
                                 .max_ranks = kMostRanks,
                                 .splits = splits,
                                 .pairs = true,
                                 .t = t_->data(),
                                 .branch = branch});
    if (branch != nullptr) is_branch_ = branch->kernel != nullptr;
    cuda::linear(stream(), {.dtype = kType,
                            .in = x_,
                            .in_stride = kInputs,
                            .weight = {.format = kType, .data = weight_},
                            .rows = kRows,
                            .n = kOutputs,
                            .k = kInputs,
                            .bias = nullptr,
                            .out = out_->data(),
                            .out_stride = kOutputs,
                            .out_dtype = kType,
                            .silu_and_mul = false});
    cuda::lora_expand(stream(), {.dtype = kType,
                                 .out_dtype = kType,
                                 .rows = rows,
                                 .layers = slots_->data(),
                                 .layer_stride = 1,
                                 .t = t_->data(),
                                 .max_ranks = kMostRanks,
                                 .splits = splits,
                                 .pairs = true,
                                 .num_parts = 1,
                                 .first_output = {},
                                 .num_outputs = {kOutputs},
                                 .silu_and_mul = false,
                                 .gate_up = nullptr,
                                 .gate_up_stride = 0,
                                 .bias = nullptr,
                                 .out = out_->data(),
                                 .out_stride = kOutputs,
                                 .branch = branch});
  }

  // What `launch` leaves of poisoned outputs and sums.
  template <typename Launch>
  std::vector<std::byte> run(const Launch& launch) {
    out_->poison();
    t_->poison();
    launch();
    synchronize();
    return out_->download_bytes();
  }

  static constexpr int64_t kMostRanks = 64;
  bool is_branch_ = false;  // of what was queued last

 private:
  std::vector<std::unique_ptr<DeviceElements>> arrays_;
  void* raw_ = nullptr;
  void* x_ = nullptr;
  void* weight_ = nullptr;
  std::unique_ptr<DeviceArray<CudaLoraLayer>> slots_;
  std::unique_ptr<DeviceArray<float>> norm_;
  std::unique_ptr<DeviceElements> out_;
  std::unique_ptr<DeviceArray<float>> t_;
  std::unique_ptr<DeviceArray<LoraItem>> items_;
  std::unique_ptr<DeviceArray<int32_t>> num_items_;
  std::unique_ptr<DeviceArray<int32_t>> order_;
};

TEST_F(LoraBranchCudaTest, AReplayTakesOtherSlots) {
  LoraBranch branch;
  set_slots({0, 0, 0, 0, 0, 0});
  queue(&branch);  // kernels are loaded before a capture
  EXPECT_FALSE(is_branch_);
  synchronize();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check_cuda(cudaStreamBeginCapture(stream().get(), cudaStreamCaptureModeThreadLocal), "capturing");
  queue(&branch);
  EXPECT_TRUE(is_branch_);
  EXPECT_EQ(branch.kernel, nullptr) << "what adds the sums has joined the branch";
  check_cuda(cudaStreamEndCapture(stream().get(), &graph), "capturing");
  check_cuda(cudaGraphInstantiate(&replay, graph, 0), "instantiating");
  std::vector<std::byte> last;
  for (const std::vector<int>& row_slots : std::vector<std::vector<int>>{
           {0, 0, 0, 0, 0, 0}, {2, 1, 0, -1, 1, 2}, {-1, -1, -1, -1, -1, -1}, {1, 1, 1, 1, 1, 1}}) {
    set_slots(row_slots);
    const auto in_line = run([&] { queue(nullptr); });
    EXPECT_NE(in_line, last) << "slots matter";
    for (int i = 0; i < 20; ++i) {
      const auto replayed = run([&] {
        for (int j = 0; j < 3; ++j) {
          check_cuda(cudaGraphLaunch(replay, stream().get()), "replaying");
        }
      });
      ASSERT_EQ(replayed, in_line) << "slots " << row_slots[0] << ", " << row_slots[1];
    }
    last = in_line;
  }
  check_cuda(cudaGraphExecDestroy(replay), "cleaning up");
  check_cuda(cudaGraphDestroy(graph), "cleaning up");
}

}  // namespace
}  // namespace quire::ops
