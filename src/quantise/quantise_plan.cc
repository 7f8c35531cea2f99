#include "quantise/quantise_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr std::string_view kEmbeddingModule = "model.embed_tokens";
constexpr std::string_view kOutputModule = "lm_head";
constexpr std::string_view kLayerPrefix = "model.layers.";

int64_t layer_of(std::string_view module) {
  if (!module.starts_with(kLayerPrefix)) return -1;
  const std::string_view rest = module.substr(kLayerPrefix.size());
  int64_t layer = -1;
  std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  return layer;
}

// The names of the tensors that a checkpoint may have for the matrix.
std::vector<std::string> names_of_tensors(const ModelConfig& config, const std::string& module,
                                          MatrixShape shape) {
  const auto scheme = config.quantization ? config.quantization->scheme_of(module) : std::nullopt;
  if (!scheme) return {module + ".weight"};
  std::vector<std::string> names;
  for (const SchemeLeaf& leaf : leaves_of(*scheme, module, shape.n, shape.k)) {
    names.push_back(module + "." + leaf.name);
  }
  return names;
}

bool is_quantised_already(const ModelConfig& config, std::string_view module) {
  return config.quantization && config.quantization->scheme_of(module).has_value();
}

// A dense tensor of `dtype`.
WrittenTensor dense_tensor(std::string name, DType dtype, std::vector<int64_t> shape) {
  size_t bytes = size_of(dtype);
  for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
  return {std::move(name), safetensors_name(dtype), std::move(shape), bytes};
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const ModelConfig& config, const RoundingTargets& targets,
          bool has_kv_scales)
      : checkpoint_(checkpoint), config_(config), targets_(targets), dense_(dense_model(config)) {
    plan_.has_kv_scales = has_kv_scales;
  }

  QuantisePlan plan() {
    add_matrix(std::string(kEmbeddingModule),
               config_.tie_word_embeddings ? targets_.output : std::nullopt);
    for (const std::string& module : linear_layers(config_)) {
      const bool is_rounded =
          add_matrix(module, module == kOutputModule ? targets_.output : targets_.layers);
      if (!is_rounded) plan_.kept.push_back(module);
    }
    for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
      if (taken_.contains(tensor.name)) continue;
      // Scales of activations and the like, which belong to the scheme that is given up. Keys and
      // values stay as large as they were.
      const bool is_given_up = is_float8_attention_scale(tensor.name) ||
                               (config_.quantization && is_unused_by_quantised_layers(tensor.name));
      const bool is_kv_scale = is_kv_cache_scale(tensor.name);
      if (is_kv_scale ? plan_.has_kv_scales : is_given_up) continue;
      plan_.copied.push_back(&tensor);
    }
    plan_.source_bytes = checkpoint_.total_bytes();
    return std::move(plan_);
  }

 private:
  static ModelOptions dense_model(const ModelConfig& config) {
    ModelOptions options;
    options.config = config;
    options.config.quantization.reset();
    options.max_model_len = 1;
    return options;
  }

  MatrixShape shape_of(const std::string& module) {
    const auto targets = dense_.model().parameters().find(module + ".weight");
    check(!targets.empty(), "the module is a matrix of the model");
    return {targets.front().shape.at(0), targets.front().shape.at(1)};
  }

  // Whether the matrix is rounded. Otherwise a dense one is copied like any other tensor.
  bool add_matrix(const std::string& module, const std::optional<RoundingTarget>& target) {
    PlannedMatrix matrix = {.module = module, .shape = shape_of(module), .layer = layer_of(module)};
    if (target && target->can_store(matrix.shape.k)) matrix.rounded_to = target;
    const bool is_rounded = matrix.rounded_to.has_value();
    const bool is_quantised = is_quantised_already(config_, module);
    if (!is_rounded && !is_quantised) return false;
    if (is_rounded && matrix.layer < 0) plan_.output = module;
    // Symmetric layers may have zero points, of zeros, that belong to the scheme that is given up.
    if (is_quantised) taken_.insert(module + ".weight_zero_point");
    for (const std::string& name : names_of_tensors(config_, module, matrix.shape)) {
      const CheckpointTensor* tensor = checkpoint_.find(name);
      if (tensor == nullptr) continue;
      matrix.source_bytes += tensor->bytes;
      taken_.insert(name);
    }
    plan_.matrices.push_back(std::move(matrix));
    return is_rounded;
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const RoundingTargets& targets_;
  CountedModel dense_;  // says the shapes of the matrices, however they are stored
  QuantisePlan plan_;
  std::set<std::string, std::less<>> taken_;  // tensors of the matrices
};

void check_fits(const Checkpoint& checkpoint, const ModelConfig& config) {
  ModelOptions options;
  options.config = config;
  options.max_model_len = 1;
  CountedModel counted(options);
  check_weights(checkpoint, counted.model().parameters());
}

}  // namespace

std::vector<WrittenTensor> QuantisePlan::written(DType dense_dtype) const {
  std::vector<WrittenTensor> tensors;
  for (const CheckpointTensor* tensor : copied) {
    tensors.push_back({tensor->name, tensor->dtype, tensor->shape, tensor->bytes});
  }
  for (size_t i = 0; i < matrices.size(); ++i) {
    const PlannedMatrix& matrix = matrices[i];
    if (matrix.rounded_to) {
      for (WrittenTensor& tensor :
           tensors_of(*matrix.rounded_to, matrix.module, matrix.shape.n, matrix.shape.k)) {
        tensors.push_back(std::move(tensor));
      }
    } else {
      tensors.push_back(
          dense_tensor(matrix.module + ".weight", dense_dtype, {matrix.shape.n, matrix.shape.k}));
    }
    const bool ends_layer = i + 1 == matrices.size() || matrices[i + 1].layer != matrix.layer;
    if (!has_kv_scales || !ends_layer || matrix.layer < 0) continue;
    for (const char* leaf : {"k_scale", "v_scale"}) {
      tensors.push_back(
          dense_tensor(fmt::format("{}{}.self_attn.{}", kLayerPrefix, matrix.layer, leaf),
                       DType::kFloat32, {1}));
    }
  }
  return tensors;
}

QuantisePlan plan_quantisation(const Checkpoint& checkpoint, const ModelConfig& config,
                               const RoundingTargets& targets, bool has_kv_scales) {
  check_fits(checkpoint, config);
  QuantisePlan plan = Planner(checkpoint, config, targets, has_kv_scales).plan();
  for (const PlannedMatrix& matrix : plan.matrices) {
    if (matrix.rounded_to) return plan;
  }
  throw Error(fmt::format(
      "No layer can be quantised: the numbers of their inputs are no multiples of a group's {}.",
      targets.layers.scheme.group_inputs));
}

}  // namespace quire
