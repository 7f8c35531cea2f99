// What adapters in slots add to a layer, against plain loops in double precision.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/ceil_div.h"
#include "ops/cuda/cuda_test_util.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/lora_kernels.h"

namespace quire::ops {
namespace {

struct Case {
  DType dtype = DType::kBFloat16;
  int64_t k = 256;
  std::vector<int64_t> widths = {96, 32, 32};  // of the parts
  // Of each slot, the rank of its part of each of the layer's: not padded; 0: it has none.
  std::vector<std::vector<int>> ranks = {{16, 16, 16}};
  // Rows of each slot, those without one first.
  std::vector<int> rows = {0, 1};
  int64_t first_row = 0;  // rows of the step before it are not the matrices'
  bool gated = false;
  bool vectors = false;   // of factors, the base's bias and added biases
  bool logits = false;    // outputs are float32
  bool looks_up = false;  // of an embedding, whose inputs are tokens

  DType out_dtype() const { return logits ? DType::kFloat32 : dtype; }
};

// Of outputs rounded to a dtype; t is not rounded, or to two numbers of 16 bits.
double tolerance_of(const Case& sizes) {
  if (sizes.logits && sizes.dtype != DType::kFloat32) return 3e-5;
  switch (sizes.dtype) {
    case DType::kBFloat16:
      return 4e-3;
    case DType::kFloat16:
      return 6e-4;
    default:
      return 3e-6;
  }
}

int padded(int rank) {
  return round_up(rank, kLoraRankStep);
}

// A layer's slots on the device, and their numbers.
class Slots {
 public:
  Slots(const Case& sizes, std::mt19937& random) : sizes_(sizes) {
    const size_t num_parts = sizes.widths.size();
    for (const std::vector<int>& ranks : sizes.ranks) {
      CudaLoraLayer layer = {};
      std::vector<float> a;
      for (size_t part = 0; part < num_parts; ++part) {
        layer.first_rank[part] = layer.ranks;
        layer.rank[part] = padded(ranks[part]);
        layer.scale[part] = 0.5f + static_cast<float>(part);
        layer.ranks += layer.rank[part];
        add_rows(a, ranks[part], layer.rank[part], sizes.k, random);
        std::vector<float> b;
        for (int64_t n = 0; n < sizes.widths[part]; ++n) {
          const auto row = random_values(static_cast<size_t>(ranks[part]), random, 0.2f);
          b.insert(b.end(), row.begin(), row.end());
          b.resize(b.size() + static_cast<size_t>(layer.rank[part] - ranks[part]));
        }
        layer.b[part] = keep(b);
        if (sizes.vectors) add_vectors(layer, part, random);
      }
      layer.a = keep(a);
      max_ranks_ = std::max<int64_t>(max_ranks_, layer.ranks);
      layers_.push_back(layer);
    }
    // Larger adapters may come to other slots.
    if (sizes.ranks.size() > 1) max_ranks_ = std::max<int64_t>(max_ranks_, 48);
    // Other layers' entries lie between.
    std::vector<CudaLoraLayer> table(layers_.size() * kStride);
    for (size_t slot = 0; slot < layers_.size(); ++slot) table[slot * kStride] = layers_[slot];
    table_ = std::make_unique<DeviceArray<CudaLoraLayer>>(table);
  }

  static constexpr int64_t kStride = 3;
  const CudaLoraLayer* table() const { return table_->data(); }
  const CudaLoraLayer& layer(size_t slot) const { return layers_[slot]; }
  int64_t max_ranks() const { return max_ranks_; }

  // x A^T of one row.
  std::vector<double> shrunk(size_t slot, const float* x) const {
    const std::vector<float>& a = numbers_of(layers_[slot].a);
    std::vector<double> t(static_cast<size_t>(layers_[slot].ranks));
    for (size_t i = 0; i < a.size(); ++i) {
      const size_t k = i % static_cast<size_t>(sizes_.k);
      t[i / static_cast<size_t>(sizes_.k)] += static_cast<double>(x[k]) * a[i];
    }
    return t;
  }
  // A's column of a token.
  std::vector<double> looked_up(size_t slot, int32_t id) const {
    const std::vector<float>& a = numbers_of(layers_[slot].a);
    std::vector<double> t;
    for (auto i = static_cast<size_t>(id); i < a.size(); i += static_cast<size_t>(sizes_.k)) {
      t.push_back(a[i]);
    }
    return t;
  }
  // What an output of a part becomes that was `base`, with `bias` in it.
  double changed(size_t slot, size_t part, int64_t output, const std::vector<double>& t,
                 double base, double bias) const {
    const auto at = static_cast<size_t>(output);
    const CudaLoraLayer& layer = layers_[slot];
    double value = base + added(slot, part, output, t);
    if (layer.factor[part] != nullptr) {
      value = vector_of(layer.factor[part])[at] * (value - bias) + bias;
    }
    return layer.added[part] == nullptr ? value : value + vector_of(layer.added[part])[at];
  }

 private:
  double added(size_t slot, size_t part, int64_t output, const std::vector<double>& t) const {
    const CudaLoraLayer& layer = layers_[slot];
    const std::vector<float>& b = numbers_of(layer.b[part]);
    double sum = 0;
    for (int rank = 0; rank < layer.rank[part]; ++rank) {
      sum += t[static_cast<size_t>(layer.first_rank[part] + rank)] *
             b[static_cast<size_t>(output * layer.rank[part] + rank)];
    }
    return layer.scale[part] * sum;
  }
  // Factors where there is a matrix; added biases of every other part, also where there is none.
  void add_vectors(CudaLoraLayer& layer, size_t part, std::mt19937& random) {
    const auto width = static_cast<size_t>(sizes_.widths[part]);
    std::vector<float> factors = random_values(width, random, 0.5f);
    for (float& factor : factors) factor += 1;
    if (layer.rank[part] > 0) layer.factor[part] = keep_vector(factors);
    if ((part + layers_.size()) % 2 == 0) {
      layer.added[part] = keep_vector(random_values(width, random));
    }
  }
  static void add_rows(std::vector<float>& to, int rows, int padded_rows, int64_t columns,
                       std::mt19937& random) {
    const auto values = random_values(static_cast<size_t>(rows * columns), random, 0.1f);
    to.insert(to.end(), values.begin(), values.end());
    to.resize(to.size() + static_cast<size_t>((padded_rows - rows) * columns));
  }
  const void* keep(const std::vector<float>& values) {
    arrays_.push_back(std::make_unique<DeviceElements>(sizes_.dtype, values));
    numbers_.push_back(rounded(sizes_.dtype, values));
    return arrays_.back()->data();
  }
  const float* keep_vector(const std::vector<float>& values) {
    vectors_.push_back({std::make_unique<DeviceArray<float>>(values), values});
    return vectors_.back().first->data();
  }
  const std::vector<float>& vector_of(const float* data) const {
    return std::ranges::find(vectors_, data, [](const auto& one) { return one.first->data(); })
        ->second;
  }
  const std::vector<float>& numbers_of(const void* data) const {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i]->data() == data) return numbers_[i];
    }
    check(false, "a test's matrix is one of its own");
    return numbers_.front();
  }

  Case sizes_;
  std::vector<std::unique_ptr<DeviceElements>> arrays_;
  std::vector<std::vector<float>> numbers_;
  std::vector<std::pair<std::unique_ptr<DeviceArray<float>>, std::vector<float>>> vectors_;
  std::vector<CudaLoraLayer> layers_;
  std::unique_ptr<DeviceArray<CudaLoraLayer>> table_;
  int64_t max_ranks_ = 0;
};

class LoraCudaTest : public CudaTest {
 protected:
  void run(const Case& sizes);
};

void LoraCudaTest::run(const Case& sizes) {
  const int64_t total = std::accumulate(sizes.rows.begin(), sizes.rows.end(), int64_t{0});
  SCOPED_TRACE(std::string(name_of(sizes.dtype)) + ", k " + std::to_string(sizes.k) + ", rows " +
               std::to_string(total) + " from " + std::to_string(sizes.first_row) + ", slots " +
               std::to_string(sizes.ranks.size()) + ", first rank " +
               std::to_string(sizes.ranks[0][0]) + (sizes.gated ? ", gated" : "") +
               (sizes.vectors ? ", with factors and biases" : "") +
               (sizes.logits ? ", logits" : "") + (sizes.looks_up ? ", of an embedding" : ""));
  const Slots slots(sizes, random());

  // Rows in any order, gathered slot by slot into items of at most kLoraItemRows.
  std::vector<int32_t> order(static_cast<size_t>(total));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random());
  std::vector<int> slot_of(order.size());
  std::vector<LoraItem> items;
  int32_t next = 0;
  for (size_t group = 0; group < sizes.rows.size(); ++group) {
    for (int left = sizes.rows[group]; left > 0;) {
      const int count = std::min(left, kLoraItemRows);
      items.push_back({static_cast<int32_t>(group) - 1, next, count, 0});
      for (int i = 0; i < count; ++i) {
        slot_of[static_cast<size_t>(order[static_cast<size_t>(next + i)])] =
            static_cast<int>(group) - 1;
      }
      next += count;
      left -= count;
    }
  }
  const auto num_items = static_cast<int32_t>(items.size());
  items.push_back({0, 1 << 20, kLoraItemRows, 0});  // not looked at
  DeviceArray<LoraItem> device_items(items);
  DeviceArray<int32_t> device_num_items(std::vector<int32_t>{num_items});
  DeviceArray<int32_t> device_order(order);
  const CudaLoraRows rows = {.items = device_items.data(),
                             .num_items = device_num_items.data(),
                             .max_items = std::ssize(items),
                             .rows = device_order.data(),
                             .first_row = sizes.first_row,
                             .num_rows = total - sizes.first_row};
  const auto num_rows = static_cast<size_t>(rows.num_rows);

  const auto k = static_cast<size_t>(sizes.k);
  const size_t x_stride = round_up<size_t>(k, 8) + 8;
  const auto x = rounded(sizes.dtype, random_values(num_rows * x_stride, random()));
  DeviceElements device_x(sizes.dtype, x);
  std::vector<int32_t> ids(sizes.looks_up ? num_rows : 0);
  for (int32_t& id : ids) id = static_cast<int32_t>(random()() % k);
  DeviceArray<int32_t> device_ids(ids);
  const int splits = sizes.looks_up ? 1 : lora_splits(rows.num_rows, sizes.k);
  DeviceArray<float> t(static_cast<size_t>(splits * rows.num_rows * slots.max_ranks()));

  const int64_t n = std::accumulate(sizes.widths.begin(), sizes.widths.end(), int64_t{0});
  const int64_t out_width = sizes.gated ? n / 2 : n;
  const auto out_stride = round_up<int64_t>(out_width, 8) + 8;
  const auto base_stride = round_up<int64_t>(n, 8) + 16;
  const auto base =
      rounded(sizes.dtype, random_values(num_rows * static_cast<size_t>(base_stride), random()));
  std::vector<float> before(num_rows * static_cast<size_t>(out_stride));
  if (!sizes.gated) before = rounded(sizes.out_dtype(), random_values(before.size(), random()));
  DeviceElements device_base(sizes.dtype, base);
  const std::vector<float> bias = random_values(static_cast<size_t>(n), random());
  DeviceArray<float> device_bias(bias);
  DeviceElements out(sizes.out_dtype(), before.size());

  CudaLoraExpand expand = {.dtype = sizes.dtype,
                           .out_dtype = sizes.out_dtype(),
                           .rows = rows,
                           .layers = slots.table(),
                           .layer_stride = Slots::kStride,
                           .t = t.data(),
                           .max_ranks = slots.max_ranks(),
                           .splits = splits,
                           .pairs = false,
                           .num_parts = static_cast<int>(sizes.widths.size()),
                           .first_output = {},
                           .num_outputs = {},
                           .silu_and_mul = sizes.gated,
                           .gate_up = sizes.gated ? device_base.data() : nullptr,
                           .gate_up_stride = base_stride,
                           .bias = sizes.vectors ? device_bias.data() : nullptr,
                           .out = out.data(),
                           .out_stride = out_stride};
  for (size_t part = 0; part < sizes.widths.size(); ++part) {
    expand.num_outputs[part] = sizes.widths[part];
    if (part > 0)
      expand.first_output[part] = expand.first_output[part - 1] + sizes.widths[part - 1];
  }
  const auto run_kernels = [&](bool pairs) {
    expand.pairs = pairs;
    t.poison();
    if (sizes.gated) {
      out.poison();
    } else {
      out.upload(before);
    }
    if (sizes.looks_up) {
      cuda::lora_look_up(stream(), {.dtype = sizes.dtype,
                                    .rows = rows,
                                    .layers = slots.table(),
                                    .layer_stride = Slots::kStride,
                                    .ids = device_ids.data(),
                                    .k = sizes.k,
                                    .max_ranks = slots.max_ranks(),
                                    .pairs = pairs,
                                    .t = t.data()});
    } else {
      cuda::lora_shrink(stream(), {.dtype = sizes.dtype,
                                   .rows = rows,
                                   .layers = slots.table(),
                                   .layer_stride = Slots::kStride,
                                   .x = device_x.data(),
                                   .x_stride = static_cast<int64_t>(x_stride),
                                   .k = sizes.k,
                                   .max_ranks = slots.max_ranks(),
                                   .splits = splits,
                                   .pairs = pairs,
                                   .t = t.data()});
    }
    cuda::lora_expand(stream(), expand);
    synchronize();
    return out.download_bytes();
  };

  std::vector<float> expected = before;
  for (size_t row = 0; row < num_rows; ++row) {
    const int slot = slot_of[row + static_cast<size_t>(sizes.first_row)];
    const auto s = static_cast<size_t>(slot);
    std::vector<double> sums;
    if (slot >= 0) {
      sums = sizes.looks_up ? slots.looked_up(s, ids[row]) : slots.shrunk(s, &x[row * x_stride]);
    }
    const auto changed = [&](size_t part, int64_t output, double value) {
      const auto at = static_cast<size_t>(expand.first_output[part] + output);
      return slot < 0 ? value : slots.changed(s, part, output, sums, value, bias[at]);
    };
    float* to = &expected[row * static_cast<size_t>(out_stride)];
    if (sizes.gated) {
      const float* from = &base[row * static_cast<size_t>(base_stride)];
      for (int64_t i = 0; i < out_width; ++i) {
        const double gate = changed(0, i, from[i]);
        const double up = changed(1, i, from[i + out_width]);
        to[i] = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
      }
      continue;
    }
    for (size_t part = 0; part < sizes.widths.size(); ++part) {
      for (int64_t i = 0; i < sizes.widths[part]; ++i) {
        float& value = to[expand.first_output[part] + i];
        value = static_cast<float>(changed(part, i, value));
      }
    }
  }

  bool whole = true;
  for (const int64_t width : sizes.widths) whole &= width % 8 == 0;
  const bool takes_pairs = whole && takes_lora_pairs(sizes.dtype, sizes.looks_up ? 0 : sizes.k);
  for (const bool pairs : {false, true}) {
    if (pairs && !takes_pairs) continue;
    SCOPED_TRACE(pairs ? "by tensor cores" : "element by element");
    const std::vector<std::byte> bytes = run_kernels(pairs);
    ASSERT_TRUE(run_kernels(pairs) == bytes) << "a second run gives other bits";
    const std::vector<float> actual = decode(sizes.out_dtype(), bytes);
    for (size_t row = 0; row < num_rows; ++row) {
      const size_t at = row * static_cast<size_t>(out_stride);
      const std::span got(&actual[at], static_cast<size_t>(out_stride));
      const std::span wanted(&expected[at], got.size());
      const auto width = static_cast<size_t>(out_width);
      ASSERT_TRUE(is_close(got.first(width), wanted.first(width), tolerance_of(sizes)))
          << "row " << row;
      if (sizes.gated) continue;  // poison lies between rows
      const bool is_base = slot_of[row + static_cast<size_t>(sizes.first_row)] < 0;
      const size_t first_same = is_base ? 0 : width;
      ASSERT_TRUE(std::equal(got.begin() + static_cast<std::ptrdiff_t>(first_same), got.end(),
                             wanted.begin() + static_cast<std::ptrdiff_t>(first_same)))
          << "row " << row << " has changed where nothing is added";
    }
  }
}

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

TEST_F(LoraCudaTest, AddsToTheRowsOfEachSlot) {
  for (const DType dtype : kDTypes) {
    run({.dtype = dtype});
    run({.dtype = dtype, .ranks = {{8, 8, 8}, {1, 0, 33}, {0, 0, 0}}, .rows = {3, 1, 17, 2}});
    run({.dtype = dtype, .widths = {64}, .ranks = {{16}, {5}}, .rows = {0, 40, 16}});
    run({.dtype = dtype, .k = 4096, .widths = {512}, .ranks = {{64}, {16}}, .rows = {2, 8, 8}});
    run({.dtype = dtype, .rows = {5, 0}});
    for (const int rows : {1, 8, 16}) {
      run({.dtype = dtype,
           .k = 4096,
           .widths = {1024, 256, 256},
           .ranks = std::vector<std::vector<int>>(4, {16, 16, 16}),
           .rows = {rows - 1, rows, rows, rows, 2}});
      run({.dtype = dtype,
           .k = 1536,
           .widths = {1200, 1200},
           .ranks = {{16, 16}, {7, 24}},
           .rows = {3, rows, 20},
           .gated = true});
      run({.dtype = dtype, .k = 12288, .widths = {2048}, .ranks = {{16}}, .rows = {0, rows}});
    }
  }
}

TEST_F(LoraCudaTest, TakesAnyRank) {
  for (const DType dtype : kDTypes) {
    for (const int rank : {1, 7, 16, 17, 48, 64, 65, 128, 200, 256}) {
      run({.dtype = dtype, .k = 320, .widths = {80, 272}, .ranks = {{rank, rank}}, .rows = {1, 5}});
    }
  }
}

TEST_F(LoraCudaTest, TakesAnySizes) {
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {1, 8, 24, 100, 264, 1000, 2056, 12288}) {
      for (const int64_t n : {1, 8, 40, 250, 264}) {
        run({.dtype = dtype,
             .k = k,
             .widths = {n, n},
             .ranks = {{16, 4}, {0, 20}},
             .rows = {2, 3, 4}});
      }
    }
  }
}

TEST_F(LoraCudaTest, GatesAllRows) {
  for (const DType dtype : kDTypes) {
    for (const int64_t inner : {8, 20, 256, 1000}) {
      run({.dtype = dtype,
           .widths = {inner, inner},
           .ranks = {{16, 16}, {0, 70}, {12, 0}, {0, 0}},
           .rows = {4, 3, 18, 1, 2},
           .gated = true});
    }
  }
}

TEST_F(LoraCudaTest, ScalesOutputsAndAddsBiases) {
  for (const DType dtype : kDTypes) {
    run({.dtype = dtype, .vectors = true});
    run({.dtype = dtype,
         .ranks = {{8, 8, 8}, {1, 0, 33}, {0, 0, 0}},
         .rows = {3, 1, 17, 2},
         .vectors = true});
    run({.dtype = dtype, .widths = {250, 30}, .ranks = {{16, 4}}, .rows = {2, 5}, .vectors = true});
    for (const int64_t inner : {20, 256}) {
      run({.dtype = dtype,
           .widths = {inner, inner},
           .ranks = {{16, 16}, {0, 70}, {12, 0}, {0, 0}},
           .rows = {4, 3, 18, 1, 2},
           .gated = true,
           .vectors = true});
    }
    run({.dtype = dtype,
         .k = 1024,
         .widths = {200, 200},
         .ranks = {{16, 16}, {64, 64}},
         .rows = {100, 300, 133},
         .vectors = true});
  }
}

TEST_F(LoraCudaTest, TakesSomeOfTheStepsRows) {
  for (const DType dtype : kDTypes) {
    for (const bool gated : {false, true}) {
      run({.dtype = dtype,
           .widths = {48, 48},
           .ranks = {{16, 16}, {32, 32}},
           .rows = {7, 30, 20},
           .first_row = 23,
           .gated = gated});
    }
  }
}

TEST_F(LoraCudaTest, TakesTheRowsOfPrompts) {
  for (const DType dtype : kDTypes) {
    for (const bool gated : {false, true}) {
      run({.dtype = dtype,
           .k = 1024,
           .widths = {200, 200},
           .ranks = {{16, 16}, {64, 64}, {30, 100}},
           .rows = {100, 300, 133, 77},
           .gated = gated});
    }
  }
}

TEST_F(LoraCudaTest, AddsToLogits) {
  for (const DType dtype : kDTypes) {
    for (const int64_t vocab : {9, 40, 250, 4096}) {
      for (const int rank : {5, 16, 70, 200}) {
        run({.dtype = dtype,
             .k = 264,
             .widths = {vocab},
             .ranks = {{rank}, {16}, {0}},
             .rows = {3, 1, 40, 2},
             .vectors = rank == 16,
             .logits = true});
      }
    }
    // The last ranks may have no part of the vocabulary.
    run({.dtype = dtype, .widths = {0}, .ranks = {{16}}, .rows = {1, 5}, .logits = true});
  }
}

TEST_F(LoraCudaTest, LooksUpTokens) {
  for (const DType dtype : kDTypes) {
    for (const int64_t vocab : {1, 57, 5000}) {
      for (const int rank : {1, 16, 70, 200}) {
        run({.dtype = dtype,
             .k = vocab,
             .widths = {rank == 70 ? 250 : 264},
             .ranks = {{rank}, {9}},
             .rows = {2, 1, 77},
             .first_row = rank == 1 ? 7 : 0,
             .vectors = rank == 16,
             .looks_up = true});
      }
    }
    run({.dtype = dtype,
         .k = 300,
         .widths = {1024},
         .ranks = {{16}, {48}},
         .rows = {100, 300, 233},
         .looks_up = true});
  }
}

}  // namespace
}  // namespace quire::ops
