#include "runner/model_support.h"

#include "models/registry.h"
#include "quire/error.h"

namespace quire {

std::optional<std::string> why_unsupported(const ModelConfig& config) {
  ModelOptions options;
  options.config = config;
  options.max_model_len = 2;
  try {
    model_kv_cache_shape(options);
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

int64_t count_parameters(const ModelOptions& options) {
  ModelOptions whole = options;
  whole.rank = 0;
  whole.size = 1;
  whole.max_model_len = 2;  // a short rotary table
  whole.device = {};
  whole.dtype = DType::kFloat32;
  const std::unique_ptr<Model> model = create_model(whole);
  int64_t count = 0;
  for (const ParameterMap::Target& target : model->parameters().targets()) {
    int64_t elements = 1;
    for (int64_t extent : target.parameter->parts()[target.part].shape) elements *= extent;
    count += elements;
  }
  return count;
}

ModelCost cost_of(const ModelConfig& config, DType dtype) {
  const auto as_double = [](int64_t value) { return static_cast<double>(value); };
  const double hidden = as_double(config.hidden_size);
  const double q = as_double(config.num_attention_heads * config.head_dim);
  const double kv = as_double(config.num_key_value_heads * config.head_dim);
  const double layers = as_double(config.num_hidden_layers);
  const double layer_weights =
      hidden * (q + 2 * kv) + q * hidden + 3 * hidden * as_double(config.intermediate_size);
  const double output_weights = hidden * as_double(config.vocab_size);
  const auto element = static_cast<double>(size_of(dtype));
  ModelCost cost;
  cost.weight_bytes = (layers * layer_weights + output_weights) * element;
  cost.flops_per_token = 2 * layers * layer_weights;
  cost.output_layer_flops = 2 * output_weights;
  cost.attention_flops_per_context_token = 4 * layers * q;
  cost.kv_bytes_per_token = 2 * layers * kv * element;
  return cost;
}

}  // namespace quire
