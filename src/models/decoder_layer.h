#pragma once
// One layer of a decoder: norm, attention, norm, gated MLP, with residuals; and what its weights
// take. Thread safety: as Model says.
#include <cstddef>
#include <string>
#include <vector>

#include "layers/attention.h"
#include "layers/mlp.h"
#include "layers/norm.h"
#include "models/matrix_formats.h"
#include "models/model.h"
#include "ops/decoder_step.h"

namespace quire {

// The modules that checkpoints have in the place of a layer's fused ones.
PackedModules packed_modules();

// What the layers' weights take.
struct DecoderMemory {
  MemoryItem attention = {.name = "attention weights", .formats = {}};
  MemoryItem mlp = {.name = "MLP weights", .formats = {}};
  MemoryItem norms = {.name = "norm weights", .formats = {std::string(name_of(DType::kFloat32))}};
};

// Memory of a layer's parameters.
template <typename Layer>
size_t parameter_bytes(Layer& layer) {
  ParameterMap parameters;
  layer.add_parameters("", parameters);
  return parameters.bytes();
}

// Adds what a layer's matrices take, and their formats.
template <typename Layer>
void add_matrices(Layer& layer, MemoryItem& item) {
  item.bytes += parameter_bytes(layer);
  std::vector<MatrixProduct> products;
  layer.add_products(products);
  for (const MatrixProduct& product : products) item.formats.insert(describe(product));
}

class DecoderLayer {
 public:
  DecoderLayer(const AttentionConfig& attention, const MlpConfig& mlp, const Placement& place);

  void add_parameters(const std::string& name, ParameterMap& parameters);
  void add_lora_sites(const std::string& name, LoraSites& sites) const;
  void add_memory(DecoderMemory& memory);
  void add_products(std::vector<MatrixProduct>& products) const;

  // As Attention and Mlp have it.
  bool describe(ops::DecoderStepLayer& layer, const GpuLora* adapters) const;
  const Attention& attention() const { return attention_; }

  // Works in place. `layer`: its place in the model. In the first `hidden` doesn't hold anything
  // yet: the embedding is in `residual`.
  void forward(ForwardContext& context, const Tensor& cos_sin, const KvCacheView& cache,
               int64_t layer, const IntermediateTensors& state) const;

 private:
  RmsNorm input_norm_;
  Attention attention_;
  RmsNorm post_attention_norm_;
  Mlp mlp_;
};

// Copies the rows that `context.aux` wants of a layer's input, if it wants any of that layer's.
// `layer`: its place in the model; the place behind the last one is the output layer's.
void hand_out(ForwardContext& context, int64_t layer, const Tensor& input);

}  // namespace quire
