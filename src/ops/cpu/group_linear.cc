#include "ops/cpu/group_linear.h"

#include <algorithm>
#include <bit>

#include "base/ceil_div.h"
#include "base/watched_memory.h"
#include "ops/cpu/dispatch.h"
#include "ops/cpu/group_panels.h"
#include "ops/cpu/next_block.h"
#include "ops/cpu/scratch.h"

namespace quire::ops {
namespace {

// Of a panel, as the tile kernel reads it, that is worked on at once: it stays in the L2 cache
// while every row tile passes over it, and what is unpacked lies on the task's stack. Between
// blocks the sums rest in `out`, exactly.
constexpr int64_t kBlockBytes = 128 << 10;
// Rows of one task when there are many: their activations of one block share the L2 cache with the
// weights. Whole tiles, of AMX too.
constexpr int64_t kGroupTaskRows = 16 * kTileRows;
static_assert(kGroupTaskRows % kAmxGroupRows == 0);
// With few rows a task is bound by memory. It gets enough bytes to make taking a task cheap, but
// there must be enough tasks for threads to end together.
constexpr int64_t kGroupTaskBytes = 256 << 10;
constexpr int64_t kGroupTasksPerThread = 4;

// Groups of one panel.
struct Block {
  int64_t panel = 0;
  int64_t first_group = 0;
  int64_t groups = 0;
  const std::byte* panel_data = nullptr;
  const std::byte* weights = nullptr;  // the first group in memory
};

// One linear op, its input packed.
struct GroupProduct {
  const Kernels* kernels;
  GroupLayout layout;
  bool rounds;    // the activations are packed by pack_i8, else by pack_f32
  bool few;       // the op has few rows, which read int4 as it is
  bool in_tiles;  // rows are multiplied in AMX's tiles
  const Weight* weight;
  const std::byte* activations;
  const float* bias;
  const Tensor* out;

  int64_t n() const { return weight->n(); }
  // For a pass of `rows` rows. Fewer than a tile has would leave a part of it empty, and int4,
  // which has offsets to add after each group, gains nothing by tiles.
  void choose_kernels(int64_t rows) {
    few = rows <= kTileRows;
    in_tiles =
        rounds && !layout.four_bits && kernels->linear_i8_tiles != nullptr && rows >= kAmxGroupRows;
  }
  // Rows that are packed and multiplied at once, at most.
  int64_t tile_rows() const { return in_tiles ? kAmxGroupRows : kTileRows; }
  // Those of a packed tile that are `rows` rows of the op.
  int64_t packed_rows(int64_t rows) const { return in_tiles ? round_up(rows, tile_rows()) : rows; }
  // Of one packed row.
  int64_t row_bytes() const {
    return rounds ? layout.groups * (kInt8GroupHeader + layout.group_size)
                  : round_up(layout.k, 2) * static_cast<int64_t>(sizeof(float));
  }
  int64_t bytes_before_group(int64_t group) const {
    return rounds ? group * (kInt8GroupHeader + layout.group_size)
                  : group * layout.group_size * static_cast<int64_t>(sizeof(float));
  }
  // Of scales and offsets, which are float32 where int4 is unpacked.
  int64_t unpacked_header_bytes() const {
    if (!layout.four_bits) return layout.header_bytes();
    return layout.block_floats() * static_cast<int64_t>(sizeof(float));
  }
  // As the tile kernel for many rows reads it.
  int64_t unpacked_group_bytes() const {
    if (!rounds) return kPanelLanes * layout.group_size * static_cast<int64_t>(sizeof(float));
    return unpacked_header_bytes() + kPanelLanes * layout.group_size;
  }
};

// Where a tile of rows goes, and what it starts from and ends with.
template <typename Tile>
Tile tile_of(const GroupProduct& product, const Block& block, int64_t base, int64_t row,
             int64_t rows) {
  const int64_t column = block.panel * kPanelLanes;
  const bool is_last = block.first_group + block.groups == product.layout.groups;
  Tile tile = {};
  tile.activations = product.activations + (row - base) * product.row_bytes() +
                     product.bytes_before_group(block.first_group) * product.packed_rows(rows);
  tile.rows = static_cast<int>(rows);
  tile.cols = static_cast<int>(std::min<int64_t>(kPanelLanes, product.n() - column));
  tile.out = product.out->row<float>(row) + column;
  tile.out_stride = product.out->row_stride();
  tile.accumulate = block.first_group > 0;
  tile.bias = product.bias != nullptr && is_last ? product.bias + column : nullptr;
  return tile;
}

// Shows what a kernel reads and writes besides the block's weights (base/watched_memory.h).
template <typename Tile>
void watch(const GroupProduct& product, const Block& block, const Tile& tile) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t end = block.first_group + block.groups;
  const int64_t row_bytes =
      end == product.layout.groups
          ? product.row_bytes() - product.bytes_before_group(block.first_group)
          : product.bytes_before_group(end) - product.bytes_before_group(block.first_group);
  watch_reads(tile.activations, product.packed_rows(tile.rows) * row_bytes);
  if (tile.bias != nullptr) watch_reads(tile.bias, tile.cols * kFloat);
  watch_writes(tile.out, tile.cols * kFloat, tile.rows, tile.out_stride * kFloat);
}

// The next block of these weights, as far as there is one.
void fetch_next_block(const GroupProduct& product, const Block& block, int64_t number,
                      int64_t tiles, GroupTile& tile) {
  tile.next = block.weights;
  const int64_t bytes = block.groups * product.layout.group_bytes();
  const std::byte* const next = block.weights + bytes;
  const std::byte* const end =
      product.weight->data() + group_panel_bytes(product.layout, product.n());
  fetch_next(number, tiles, kGroupTaskRows / product.tile_rows(), next,
             std::min<int64_t>(bytes, end - next), tile);
}

// The block's integers by rows [first, last) with this kernel, for weights in their layout, with
// scales of `scale_bytes` bytes.
void multiply_integers(const GroupProduct& product, const Block& block, const std::byte* weights,
                       int scale_bytes, void (*kernel)(const GroupTile&), int64_t base,
                       int64_t first, int64_t last) {
  const int64_t tile_rows = product.tile_rows();
  const int64_t tiles = ceil_div(last - first, tile_rows);
  for (int64_t number = 0; number < tiles; ++number) {
    const int64_t row = first + number * tile_rows;
    auto tile = tile_of<GroupTile>(product, block, base, row, std::min(tile_rows, last - row));
    tile.weights = weights;
    fetch_next_block(product, block, number, tiles, tile);
    tile.groups = block.groups;
    tile.group_size = static_cast<int>(product.layout.group_size);
    tile.has_offsets = product.layout.has_offsets;
    tile.scale_bytes = scale_bytes;
    tile.scale_blocks = reinterpret_cast<const float*>(block.panel_data);
    tile.block_shift = std::countr_zero(static_cast<uint64_t>(product.layout.groups_per_block()));
    tile.first_group = block.first_group;
    watch(product, block, tile);
    kernel(tile);
  }
}

// The same for int4 that is unpacked once for all rows, with scales and offsets as float32.
void multiply_unpacked(const GroupProduct& product, const Block& block, int64_t base, int64_t first,
                       int64_t last) {
  alignas(64) std::byte unpacked[kBlockBytes];
  const GroupLayout& layout = product.layout;
  std::byte* to = unpacked;
  for (int64_t group = 0; group < block.groups; ++group, to += product.unpacked_group_bytes()) {
    const std::byte* from = block.weights + group * layout.group_bytes();
    unpack_header(layout, block.panel_data, block.first_group + group,
                  reinterpret_cast<float*>(to));
    product.kernels->unpack_i4(from + layout.header_bytes(), layout.data_bytes(),
                               to + product.unpacked_header_bytes());
  }
  multiply_integers(product, block, unpacked, sizeof(float), product.kernels->linear_unpacked_i4,
                    base, first, last);
}

// The block's numbers as float32 by rows [first, last).
void multiply_floats(const GroupProduct& product, const Block& block, int64_t base, int64_t first,
                     int64_t last) {
  alignas(64) float unpacked[kBlockBytes / sizeof(float)];
  const GroupLayout& layout = product.layout;
  int64_t inputs = 0;
  for (int64_t group = 0; group < block.groups; ++group) {
    unpack_group(layout, block.panel_data, block.first_group + group,
                 unpacked + inputs * kPanelLanes);
    inputs += layout.inputs_of(block.first_group + group);
  }
  for (int64_t row = first; row < last; row += kTileRows) {
    auto tile =
        tile_of<LinearTile>(product, block, base, row, std::min<int64_t>(kTileRows, last - row));
    tile.weights = unpacked;
    tile.steps = inputs;
    watch(product, block, tile);
    product.kernels->linear_f32(tile);
  }
}

// Rows [first, last) of `out`, one panel; `base` is the first packed row.
void run_panel(const GroupProduct& product, int64_t base, int64_t first, int64_t last,
               int64_t panel) {
  const GroupLayout& layout = product.layout;
  const Kernels& kernels = *product.kernels;
  auto* const kernel = layout.four_bits   ? kernels.linear_i4
                       : product.in_tiles ? kernels.linear_i8_tiles
                                          : kernels.linear_i8;
  // Blocks of equal size: one of a few groups would take longer to begin than to multiply.
  const int64_t most = std::max<int64_t>(1, kBlockBytes / product.unpacked_group_bytes());
  const int64_t step = ceil_div(layout.groups, ceil_div(layout.groups, most));
  for (int64_t group = 0; group < layout.groups; group += step) {
    const std::byte* const data = product.weight->data() + panel * layout.panel_bytes();
    const Block block = {.panel = panel,
                         .first_group = group,
                         .groups = std::min(step, layout.groups - group),
                         .panel_data = data,
                         .weights = data + layout.first_group() + group * layout.group_bytes()};
    watch_weights(block.panel_data, layout.first_group());
    watch_weights(block.weights, block.groups * layout.group_bytes());
    if (!product.rounds) {
      multiply_floats(product, block, base, first, last);
    } else if (layout.four_bits && !product.few) {
      multiply_unpacked(product, block, base, first, last);
    } else {
      multiply_integers(product, block, block.weights, layout.scale_bytes, kernel, base, first,
                        last);
    }
  }
}

// Rows [first, last), packed: cut into tasks of rows by panels.
void multiply_packed(Stream& stream, const GroupProduct& product, int64_t first, int64_t last) {
  const int64_t row_tasks = ceil_div(last - first, kGroupTaskRows);
  const int64_t panels = ceil_div<int64_t>(product.n(), kPanelLanes);
  const int64_t most = ceil_div(panels, kGroupTasksPerThread * stream.pool().size());
  const int64_t panels_per_task =
      product.few ? std::clamp<int64_t>(kGroupTaskBytes / product.layout.panel_bytes(), 1, most)
                  : 1;
  // Neighbouring tasks share a panel, so that threads find it in the cache they share.
  stream.pool().parallel_for(row_tasks * ceil_div(panels, panels_per_task), [&](int64_t task, int) {
    const int64_t row = first + task % row_tasks * kGroupTaskRows;
    const int64_t panel = task / row_tasks * panels_per_task;
    for (int64_t p = panel; p < std::min(panels, panel + panels_per_task); ++p) {
      run_panel(product, first, row, std::min(last, row + kGroupTaskRows), p);
    }
  });
}

// As pack_f32, with input permutation[i] at i.
void pack_permuted(const float* in, int64_t stride, int rows, int64_t k, const int32_t* permutation,
                   float* out) {
  for (int64_t i = 0; i < k; ++i) {
    for (int row = 0; row < rows; ++row) out[i * rows + row] = in[row * stride + permutation[i]];
  }
}

// Packs rows [row, row + rows) of `in`.
void pack_rows(const GroupProduct& product, const Tensor& in, int64_t row, int rows,
               std::byte* out) {
  const int32_t* permutation = product.weight->permutation();
  constexpr int64_t kFloat = sizeof(float);
  watch_reads(in.row<float>(row), in.dim(1) * kFloat, rows, in.row_stride() * kFloat);
  watch_writes(out, product.packed_rows(rows) * product.row_bytes());
  if (!product.rounds && permutation != nullptr) {
    return pack_permuted(in.row<float>(row), in.row_stride(), rows, in.dim(1), permutation,
                         reinterpret_cast<float*>(out));
  }
  if (!product.rounds) {
    return product.kernels->pack_f32(in.row<float>(row), in.row_stride(), rows, in.dim(1),
                                     reinterpret_cast<float*>(out));
  }
  const Kernels& kernels = *product.kernels;
  const auto pack = product.in_tiles ? kernels.pack_i8_tiles : kernels.pack_i8;
  pack({.in = in.row<float>(row),
        .stride = in.row_stride(),
        .permutation = permutation,
        .rows = rows,
        .k = in.dim(1),
        .group_size = static_cast<int>(product.layout.group_size),
        .excess = product.layout.excess(),
        .out = out});
}

}  // namespace

void group_linear_on_cpu(Stream& stream, const Tensor& in, const Weight& weight, const Tensor& bias,
                         const Tensor& out) {
  GroupProduct product = {.kernels = &kernels_for(stream.isa()),
                          .layout = group_layout(weight.format(), weight.k()),
                          .rounds = weight.format().rounds_activations,
                          .few = false,
                          .in_tiles = false,
                          .weight = &weight,
                          .activations = nullptr,
                          .bias = bias.defined() ? bias.data<float>() : nullptr,
                          .out = &out};
  const int64_t num_rows = in.dim(0);
  product.choose_kernels(std::min(num_rows, kLinearPassRows));
  const int64_t pass_rows = product.packed_rows(std::min(num_rows, kLinearPassRows));
  std::byte* packed = stream.scratch(static_cast<size_t>(pass_rows * product.row_bytes()));
  product.activations = packed;
  for (int64_t first = 0; first < num_rows; first += kLinearPassRows) {
    const int64_t last = std::min(num_rows, first + kLinearPassRows);
    product.choose_kernels(last - first);
    const int64_t tile_rows = product.tile_rows();
    stream.pool().parallel_for(ceil_div(last - first, tile_rows), [&](int64_t tile, int) {
      const int64_t row = first + tile * tile_rows;
      pack_rows(product, in, row, static_cast<int>(std::min(tile_rows, last - row)),
                packed + (row - first) * product.row_bytes());
    });
    multiply_packed(stream, product, first, last);
  }
}

}  // namespace quire::ops
