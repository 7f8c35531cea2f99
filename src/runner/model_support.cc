#include "runner/model_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/kv_cache_view.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "ops/linear.h"
#include "ops/weight.h"
#include "quire/error.h"

namespace quire {

std::optional<std::string> why_unsupported(const ModelConfig& config) {
  ModelOptions options;
  options.config = config;
  options.max_model_len = 2;
  try {
    const CountedModel model(options);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

void check_model(const ModelOptions& options) {
  const CountedModel model(options);
}

std::string describe_quantization(const ModelConfig& config) {
  if (!config.quantization) return "";
  return config.quantization->describe(linear_layers(config));
}

namespace {

// "int8 on the CPU", "int8 on the CPU in 12 of 15 matrices", or that they are not rounded there.
template <typename Rounds>
std::string describe_rounding(const ModelOptions& options, std::string_view type,
                              std::string_view device, const Rounds& rounds) {
  CountedModel model(options);
  const std::vector<MatrixProduct> products = model.model().products();
  const auto rounded = std::count_if(products.begin(), products.end(), rounds);
  if (rounded == 0) return fmt::format("not rounded on {}", device);
  if (static_cast<size_t>(rounded) == products.size()) return fmt::format("{} on {}", type, device);
  return fmt::format("{} on {} in {} of {} matrices", type, device, rounded, products.size());
}

}  // namespace

std::string describe_activations(const ModelConfig& config) {
  if (!config.quantization) return "";
  ModelOptions options;
  options.config = config;
  options.max_model_len = 2;
  options.dtype = DType::kBFloat16;
  const std::string on_cpu = describe_rounding(
      options, "int8", "the CPU",
      [](const MatrixProduct& product) { return product.format.rounds_activations; });
  options.device = {.type = DeviceType::kCuda, .compute_capability = ops::kQuantisedCapability};
  const std::string on_gpu = describe_rounding(
      options, "float8", "a GPU",
      [](const MatrixProduct& product) { return product.format.kind == ops::WeightKind::kFloat8; });
  return fmt::format("{}, {}; with --dtype float32 never rounded", on_cpu, on_gpu);
}

int64_t count_parameters(const ModelConfig& config) {
  ModelOptions options;
  options.config = config;
  options.max_model_len = 2;
  return count_parameters(options);
}

int64_t count_parameters(const ModelOptions& options) {
  ModelOptions whole = options;
  whole.rank = 0;
  whole.size = 1;
  CountedModel model(whole);
  int64_t count = 0;
  for (const ParameterMap::Target& target : model.model().parameters().targets()) {
    int64_t elements = 1;
    for (int64_t extent : target.share().shape) elements *= extent;
    count += elements * target.made_of().parameters_each;
  }
  return count;
}

std::vector<CheckpointTensor> dense_tensors(const ModelConfig& config) {
  ModelOptions options;
  options.config = config;
  options.config.quantization.reset();
  options.max_model_len = 2;
  CountedModel model(options);
  std::vector<CheckpointTensor> tensors;
  for (const ParameterMap::Target& target : model.model().parameters().targets()) {
    // Parts of a fused layer that the checkpoint has as one tensor follow each other.
    if (!tensors.empty() && tensors.back().name == target.name) continue;
    CheckpointTensor tensor;
    tensor.name = target.name;
    tensor.dtype = "F32";
    tensor.shape = target.shape;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

namespace {

// The whole model in one rank, from its config, device and types.
ModelOptions whole_model(const ModelOptions& model) {
  ModelOptions options = model;
  options.max_model_len = 2;
  options.rank = 0;
  options.size = 1;
  return options;
}

double weight_bytes(const MatrixProduct& product) {
  if (product.format.is_integer()) {
    return static_cast<double>(
        ops::weight_data_bytes(product.format, product.n, product.k, product.device));
  }
  return static_cast<double>(product.n) * static_cast<double>(product.k) *
         static_cast<double>(size_of(product.format.dtype));
}

}  // namespace

ModelCost cost_of(const ModelOptions& options, DType kv_cache_dtype) {
  const ModelConfig& config = options.config;
  CountedModel model(whole_model(options));
  ModelCost cost;
  double layer_weights = 0;
  double output_weights = 0;
  for (const MatrixProduct& product : model.model().products()) {
    const double weights = static_cast<double>(product.n) * static_cast<double>(product.k);
    (product.is_logits ? output_weights : layer_weights) += weights;
    cost.weight_bytes += weight_bytes(product);
  }
  const auto as_double = [](int64_t value) { return static_cast<double>(value); };
  const KvCacheShape cache = model.model().kv_cache_shape();
  const double layers = as_double(cache.num_layers);
  cost.flops_per_token = 2 * layer_weights;
  cost.output_layer_flops = 2 * output_weights;
  cost.attention_flops_per_context_token =
      4 * layers * as_double(config.num_attention_heads * config.head_dim);
  const KvCacheView block = {
      .dtype = kv_cache_dtype, .num_kv_heads = cache.num_kv_heads, .head_dim = cache.head_dim};
  cost.kv_bytes_per_token =
      2 * layers * static_cast<double>(block.block_bytes()) / block.block_size;
  return cost;
}

WeightBytes weight_bytes_of(const ModelOptions& options) {
  CountedModel model(whole_model(options));
  WeightBytes bytes;
  for (const MatrixProduct& product : model.model().products()) {
    (product.is_logits ? bytes.output_layer : bytes.layers) += weight_bytes(product);
  }
  return bytes;
}

void check_weights_of(const ModelOptions& options, const Checkpoint& checkpoint) {
  CountedModel model(options);
  check_weights(checkpoint, model.model().parameters());
}

double integer_share(const ModelOptions& options) {
  CountedModel model(whole_model(options));
  double all = 0;
  double by_integers = 0;
  for (const MatrixProduct& product : model.model().products()) {
    if (product.is_logits) continue;
    const double weights = static_cast<double>(product.n) * static_cast<double>(product.k);
    all += weights;
    if (product.format.rounds_activations) by_integers += weights;
  }
  return by_integers / all;
}

}  // namespace quire
