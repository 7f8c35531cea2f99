// Kernels of adapters.
#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

#include "core/dtype.h"
#include "ops/cuda/lora_kernels.h"
#include "ops/cuda/lora_product_kernels.h"
#include "simulated_gpu/elements.h"
#include "simulated_gpu/kernels.h"

namespace quire::simulated {
namespace {

// Calls body(row of the matrices, what its slot adds to the layer or null) for each row of the
// items.
template <typename Body>
void for_each_lora_row(const ops::CudaLoraRows& rows, const ops::CudaLoraLayer* layers,
                       int64_t layer_stride, const Body& body) {
  for (int32_t i = 0; i < *rows.num_items; ++i) {
    const ops::LoraItem& item = rows.items[i];
    const ops::CudaLoraLayer* layer = item.slot < 0 ? nullptr : layers + item.slot * layer_stride;
    for (int32_t at = item.first; at < item.first + item.count; ++at) {
      const int64_t row = rows.rows[at] - rows.first_row;
      if (row >= 0 && row < rows.num_rows) body(row, layer);
    }
  }
}

// How many parts t has. With pairs it is one part of float32 here: as many bytes as the pairs.
int parts_of(bool pairs, int splits) {
  return pairs ? 1 : splits;
}

float dot_of(const std::vector<float>& a, const std::vector<float>& b, size_t begin, size_t end) {
  float sum = 0;
  for (size_t i = begin; i < end; ++i) sum += a[i] * b[i];
  return sum;
}

// What is added to each output of a part before factors scale it.
std::vector<float> addends(const ops::CudaLoraExpand& args, const ops::CudaLoraLayer& layer,
                           int64_t row, int part) {
  const int64_t rank = layer.rank[part];
  std::vector<float> t(static_cast<size_t>(rank));
  for (int split = 0; split < parts_of(args.pairs, args.splits); ++split) {
    const float* from = static_cast<const float*>(args.t) +
                        (split * args.rows.num_rows + row) * args.max_ranks +
                        layer.first_rank[part];
    for (size_t i = 0; i < t.size(); ++i) t[i] += from[i];
  }
  std::vector<float> result;
  for (int64_t n = 0; n < args.num_outputs[part]; ++n) {
    const std::vector<float> b = read(args.dtype, layer.b[part], n * rank, rank);
    result.push_back(layer.scale[part] * dot_of(t, b, 0, t.size()));
  }
  return result;
}

bool changes_part(const ops::CudaLoraLayer* layer, int part) {
  return layer != nullptr && (layer->rank[part] > 0 || layer->added[part] != nullptr);
}

// Changes the values of a part's outputs.
void change(const ops::CudaLoraExpand& args, const ops::CudaLoraLayer* layer, int64_t row, int part,
            std::vector<float>& values) {
  if (!changes_part(layer, part)) return;
  if (layer->rank[part] > 0) {
    const std::vector<float> added = addends(args, *layer, row, part);
    for (size_t i = 0; i < values.size(); ++i) values[i] += added[i];
  }
  if (const float* factor = layer->factor[part]) {
    const float* bias = args.bias == nullptr ? nullptr : args.bias + args.first_output[part];
    for (size_t i = 0; i < values.size(); ++i) {
      const float base = bias == nullptr ? 0.0f : bias[i];
      values[i] = factor[i] * (values[i] - base) + base;
    }
  }
  if (const float* added = layer->added[part]) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += added[i];
  }
}

}  // namespace

void lora_shrink(const ops::CudaLoraShrink& args) {
  const int parts = parts_of(args.pairs, args.splits);
  auto* const t = static_cast<float*>(args.t);
  const auto shrink = [&](int64_t row, const ops::CudaLoraLayer* layer) {
    if (layer == nullptr) return;
    const std::vector<float> x = read(args.dtype, args.x, row * args.x_stride, args.k);
    for (int64_t rank = 0; rank < layer->ranks; ++rank) {
      const std::vector<float> a = read(args.dtype, layer->a, rank * args.k, args.k);
      for (int split = 0; split < parts; ++split) {
        t[(split * args.rows.num_rows + row) * args.max_ranks + rank] =
            dot_of(x, a, static_cast<size_t>(args.k * split / parts),
                   static_cast<size_t>(args.k * (split + 1) / parts));
      }
    }
  };
  for_each_lora_row(args.rows, args.layers, args.layer_stride, shrink);
}

void lora_look_up(const ops::CudaLoraLookUp& args) {
  auto* const t = static_cast<float*>(args.t);
  const auto look_up = [&](int64_t row, const ops::CudaLoraLayer* layer) {
    if (layer == nullptr) return;
    for (int64_t rank = 0; rank < layer->ranks; ++rank) {
      t[row * args.max_ranks + rank] =
          read(args.dtype, layer->a, rank * args.k + args.ids[row], 1).front();
    }
  };
  for_each_lora_row(args.rows, args.layers, args.layer_stride, look_up);
}

void lora_norm(const ops::CudaLoraNorm& args) {
  for (int32_t i = 0; i < *args.rows.num_items; ++i) {
    const ops::LoraItem& item = args.rows.items[i];
    if (item.slot < 0) continue;
    const float* weight = args.weights[item.slot * args.weight_stride];
    if (weight == nullptr) continue;
    for (int32_t at = item.first; at < item.first + item.count; ++at) {
      const int64_t row = args.rows.rows[at] - args.rows.first_row;
      if (row < 0 || row >= args.rows.num_rows) continue;
      std::vector<float> values = read(args.dtype, args.x, row * args.n, args.n);
      const float squares = dot_of(values, values, 0, values.size());
      const float scale = 1.0f / std::sqrt(squares / static_cast<float>(args.n) + args.eps);
      for (size_t n = 0; n < values.size(); ++n) values[n] *= scale * weight[n];
      write(args.dtype, args.out, row * args.n, values);
    }
  }
}

void lora_expand(const ops::CudaLoraExpand& args) {
  const auto expand = [&](int64_t row, const ops::CudaLoraLayer* layer) {
    if (args.silu_and_mul) {
      const auto read_side = [&](int part) {
        std::vector<float> values =
            read(args.dtype, args.gate_up, row * args.gate_up_stride + args.first_output[part],
                 args.num_outputs[part]);
        change(args, layer, row, part, values);
        return values;
      };
      std::vector<float> gate = read_side(0);
      const std::vector<float> up = read_side(1);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1.0f + std::exp(-gate[i]));
      return write(args.dtype, args.out, row * args.out_stride, gate);
    }
    for (int part = 0; part < args.num_parts; ++part) {
      if (!changes_part(layer, part)) continue;
      const int64_t first = row * args.out_stride + args.first_output[part];
      std::vector<float> values = read(args.out_dtype, args.out, first, args.num_outputs[part]);
      change(args, layer, row, part, values);
      write(args.out_dtype, args.out, first, values);
    }
  };
  for_each_lora_row(args.rows, args.layers, args.layer_stride, expand);
}

void lora_linear(const ops::CudaLoraLinear& args);
void lora_begin(const ops::CudaLoraBegin& args) {
  std::memset(args.memory, 0, static_cast<size_t>(args.bytes));
}

void lora_linear(const ops::CudaLoraLinear& args) {
  const ops::CudaLinear& product = args.product;
  const auto n = static_cast<size_t>(product.n);
  std::vector<float> outputs(static_cast<size_t>(product.rows) * n);
  ops::CudaLinear base = product;
  base.silu_and_mul = false;
  base.out_dtype = DType::kFloat32;
  base.out = outputs.data();
  base.out_stride = product.n;
  linear(base);
  const auto add = [&](int64_t row, const ops::CudaLoraLayer* layer) {
    if (layer == nullptr) return;
    const std::vector<float> x =
        read(product.dtype, product.in, row * product.in_stride, product.k);
    for (int part = 0; part < args.num_parts; ++part) {
      const int64_t rank = layer->rank[part];
      std::vector<float> t;
      for (int64_t i = layer->first_rank[part]; i < layer->first_rank[part] + rank; ++i) {
        const std::vector<float> a = read(product.dtype, layer->a, i * product.k, product.k);
        t.push_back(layer->scale[part] * dot_of(x, a, 0, a.size()));
      }
      // As the real kernel hands it on.
      std::vector<std::byte> rounded(t.size() * size_of(product.dtype));
      write(product.dtype, rounded.data(), 0, t);
      read(product.dtype, rounded.data(), 0, t);
      for (int64_t i = 0; i < args.num_outputs[part]; ++i) {
        const std::vector<float> b = read(product.dtype, layer->b[part], i * rank, rank);
        outputs[static_cast<size_t>(row) * n + static_cast<size_t>(args.first_output[part] + i)] +=
            dot_of(t, b, 0, t.size());
      }
    }
  };
  for_each_lora_row(args.rows, args.layers, args.layer_stride, add);
  for (int64_t row = 0; row < product.rows; ++row) {
    const auto first = outputs.begin() + row * product.n;
    std::vector<float> values(first, first + product.n);
    if (product.silu_and_mul) {
      for (size_t i = 0; i < n / 2; ++i) {
        values[i] *= values[n / 2 + i] / (1.0f + std::exp(-values[i]));
      }
      values.resize(n / 2);
    }
    write(product.dtype, product.out, row * product.out_stride, values);
  }
}

}  // namespace quire::simulated
