#include "ops/cpu/linear_blocking.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/watched_memory.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/group_linear.h"
#include "ops/cpu/next_block.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/weight_panels.h"

namespace quire::ops {
namespace {

// Steps of a panel that are worked on at once: 128 KiB of weights, which stay in the L2 cache while
// every row tile passes over them. Between blocks the sums rest in `out`, exactly.
constexpr int64_t kBlockSteps = 512;
// Tiles of rows of one task when there are many: their activations of one block (192 KiB in
// bfloat16, 1 MiB with AMX, whose CPUs have 2 MiB of L2 cache) share that cache with the weights.
constexpr int64_t kTaskTiles = 16;
// With AMX fewer, as long as threads have that many tasks each.
constexpr int64_t kLeastAmxTaskTiles = 4;
constexpr int64_t kTasksOfThread = 4;
// With few rows a task is bound by memory: enough bytes to make taking a task cheap.
constexpr int64_t kTaskBytes = 256 << 10;

// One linear op, its input packed.
struct Product {
  const Kernels* kernels;
  void (*tile_kernel)(const LinearTile&);
  const Weight* weight;
  const std::byte* activations;
  int64_t tile_rows;    // at most
  int64_t row_bytes;    // of one packed row
  int64_t input_bytes;  // of a step of one
  int64_t steps;        // of a panel
  int64_t step_bytes;
  const float* bias;
  const Tensor* out;

  // Rows [first, last) of `out`, panels [panel_begin, panel_end); `base` is the first packed row.
  void run(int64_t base, int64_t first, int64_t last, int64_t panel_begin,
           int64_t panel_end) const {
    const int64_t tiles = ceil_div<int64_t>(last - first, tile_rows);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      for (int64_t step = 0; step < steps; step += kBlockSteps) {
        watch_weights(weight->data() + (panel * steps + step) * step_bytes,
                      std::min(kBlockSteps, steps - step) * step_bytes);
        for (int64_t tile = 0; tile < tiles; ++tile) {
          const int64_t row = first + tile * tile_rows;
          LinearTile arguments =
              tile_of(base, row, std::min<int64_t>(tile_rows, last - row), panel, step);
          fetch_next_block(tile, tiles, arguments);
          watch(arguments);
          tile_kernel(arguments);
        }
      }
    }
  }

  // The next block of these weights, as far as there is one.
  void fetch_next_block(int64_t number, int64_t tiles, LinearTile& tile) const {
    const int64_t bytes = tile.steps * step_bytes;
    const std::byte* const next = static_cast<const std::byte*>(tile.weights) + bytes;
    const int64_t left = weight->data() + num_panels(weight->n()) * steps * step_bytes - next;
    fetch_next(number, tiles, kTaskTiles, next, std::min(bytes, left), tile);
  }

  // What a kernel reads and writes besides the weights.
  void watch(const LinearTile& tile) const {
    constexpr int64_t kFloat = sizeof(float);
    watch_reads(tile.activations, tile.steps * tile.rows * input_bytes);
    if (tile.bias != nullptr) watch_reads(tile.bias, tile.cols * kFloat);
    if (tile.scales != nullptr) watch_reads(tile.scales, tile.cols * kFloat);
    watch_writes(tile.out, tile.cols * kFloat, tile.rows, tile.out_stride * kFloat);
  }

  LinearTile tile_of(int64_t base, int64_t row, int64_t rows, int64_t panel, int64_t step) const {
    const int64_t column = panel * kPanelLanes;
    const bool last_block = step + kBlockSteps >= steps;
    LinearTile tile = {};
    tile.weights = weight->data() + (panel * steps + step) * step_bytes;
    tile.activations = activations + (row - base) * row_bytes + step * rows * input_bytes;
    tile.steps = std::min(kBlockSteps, steps - step);
    tile.rows = static_cast<int>(rows);
    tile.cols = static_cast<int>(std::min<int64_t>(kPanelLanes, weight->n() - column));
    tile.out = out->row<float>(row) + column;
    tile.out_stride = out->row_stride();
    tile.accumulate = step > 0;
    tile.bias = bias != nullptr && last_block ? bias + column : nullptr;
    tile.scales = weight->scales() != nullptr && last_block ? weight->scales() + column : nullptr;
    tile.next = tile.weights;
    return tile;
  }
};

// Packs rows [first, last) of `in` in tiles of rows.
void pack(Stream& stream, const Product& product, const Tensor& in, int64_t first, int64_t last,
          bool as_bf16, std::byte* packed) {
  const auto pack_tile = [&](int64_t tile, int) {
    const int64_t row = first + tile * product.tile_rows;
    const int rows = static_cast<int>(std::min<int64_t>(product.tile_rows, last - row));
    std::byte* out = packed + (row - first) * product.row_bytes;
    constexpr int64_t kFloat = sizeof(float);
    watch_reads(in.row<float>(row), in.dim(1) * kFloat, rows, in.row_stride() * kFloat);
    watch_writes(out, rows * product.row_bytes);
    if (as_bf16) {
      product.kernels->pack_bf16(in.row<float>(row), in.row_stride(), rows, in.dim(1),
                                 reinterpret_cast<uint16_t*>(out));
    } else {
      product.kernels->pack_f32(in.row<float>(row), in.row_stride(), rows, in.dim(1),
                                reinterpret_cast<float*>(out));
    }
  };
  stream.pool().parallel_for(ceil_div(last - first, product.tile_rows), pack_tile);
}

// Rows of one task, of `rows` by `panels`.
int64_t rows_of_task(const Product& product, int64_t rows, int64_t panels, int64_t threads) {
  if (product.tile_rows != kAmxTileRows) return kTaskTiles * product.tile_rows;
  const int64_t tiles = ceil_div(rows * panels, kTasksOfThread * threads * product.tile_rows);
  return std::clamp(tiles, kLeastAmxTaskTiles, kTaskTiles) * product.tile_rows;
}

// Rows [first, last), packed: cut into tasks of rows by panels.
void multiply(Stream& stream, const Product& product, int64_t first, int64_t last) {
  const int64_t rows = last - first;
  const int64_t bytes_of_panel = product.steps * product.step_bytes;
  const int64_t panels_per_task =
      rows > product.tile_rows ? 1 : std::max<int64_t>(1, kTaskBytes / bytes_of_panel);
  const int64_t panels = num_panels(product.weight->n());
  const int64_t task_rows = rows_of_task(product, rows, panels, stream.pool().size());
  const int64_t row_tasks = ceil_div(rows, task_rows);
  const int64_t panel_tasks = ceil_div(panels, panels_per_task);
  // Neighbouring tasks share a panel, so that threads find it in the cache they share.
  stream.pool().parallel_for(row_tasks * panel_tasks, [&](int64_t task, int) {
    const int64_t row = first + task % row_tasks * task_rows;
    const int64_t panel = task / row_tasks * panels_per_task;
    product.run(first, row, std::min(last, row + task_rows), panel,
                std::min(panels, panel + panels_per_task));
  });
}

auto tile_kernel_of(const Kernels& kernels, const Weight& weight) {
  switch (weight.dtype()) {
    case DType::kBFloat16:
      return kernels.linear_bf16;
    case DType::kFloat8E4M3:
      return kernels.linear_f8;
    default:
      return kernels.linear_f32;
  }
}

}  // namespace

void linear_on_cpu(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                   const Tensor& out) {
  if (weight.format().is_integer()) return group_linear_on_cpu(stream, in, weight, bias, out);
  const Kernels& kernels = kernels_for(stream.isa());
  const bool as_bf16 = weight.dtype() == DType::kBFloat16 && kernels.multiplies_bf16;
  const int64_t step_values = as_bf16 ? 2 * kernels.bf16_tile_steps : 2;
  const int64_t packed_k = ceil_div(weight.k(), step_values) * step_values;
  const int64_t value_bytes = as_bf16 ? 2 : 4;
  Product product = {
      .kernels = &kernels,
      .tile_kernel = tile_kernel_of(kernels, weight),
      .weight = &weight,
      .activations = nullptr,
      .tile_rows = as_bf16 ? kernels.bf16_tile_rows : kTileRows,
      .row_bytes = packed_k * value_bytes,
      .input_bytes = panel_step_values(weight.dtype()) * value_bytes,
      .steps = panel_steps(weight.dtype(), weight.k()),
      .step_bytes = panel_step_bytes(weight.dtype()),
      .bias = bias.defined() ? bias.data<float>() : nullptr,
      .out = &out,
  };
  const int64_t num_rows = in.dim(0);
  const int64_t pass_rows = std::min(num_rows, kLinearPassRows);
  std::byte* packed = stream.scratch(static_cast<size_t>(pass_rows * product.row_bytes));
  product.activations = packed;
  for (int64_t first = 0; first < num_rows; first += kLinearPassRows) {
    const int64_t last = std::min(num_rows, first + kLinearPassRows);
    pack(stream, product, in, first, last, as_bf16, packed);
    multiply(stream, product, first, last);
  }
}

}  // namespace quire::ops
