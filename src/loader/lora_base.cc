#include "loader/lora_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "loader/tensor_statistics.h"
#include "quire/error.h"

namespace quire {
namespace {

constexpr const char* kHeadWeight = "lm_head.weight";
constexpr const char* kEmbeddingWeight = "model.embed_tokens.weight";
constexpr std::string_view kWeightSuffix = ".weight";

class LoraFit {
 public:
  LoraFit(const LoraAdapter& adapter, const LoraBase& base)
      : adapter_(adapter), base_(base), config_(adapter.config()) {
    config_.ensure_weight_tying = config_.ensure_weight_tying && base.has_tied_head;
  }

  void check_shapes() const {
    for (const LoraModule& module : adapter_.modules()) check_module(module);
    for (const auto& [name, tensor] : adapter_.replaced()) {
      const CheckpointTensor& weight = found(name, *tensor);
      if (weight.shape != tensor->shape) fail_shape(*tensor, name, weight, weight.shape);
    }
  }

  void check_all_targets_are_there() const {
    std::vector<std::string> missing;
    for (const CheckpointTensor& tensor : base_.tensors) {
      const bool is_tied = base_.has_tied_head && tensor.name == kHeadWeight;
      if (tensor.shape.size() == 2 && tensor.name.ends_with(kWeightSuffix) && !is_tied) {
        add_if_missing(tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size()), missing);
      }
    }
    if (base_.has_tied_head) add_if_missing("lm_head", missing);
    if (missing.empty()) return;
    throw Error(fmt::format(
        "{}: the file lacks the weights of {} module{} that adapter_config.json targets and {} "
        "has, {} among them; is it whole?{}",
        adapter_.file(), missing.size(), missing.size() == 1 ? "" : "s", base_.name,
        missing.front(), hint()));
  }

 private:
  void check_module(const LoraModule& module) const {
    const std::string name = module.name + ".weight";
    const CheckpointTensor& weight = found(name, *module.a);
    const bool is_embedding = name.ends_with("embed_tokens.weight");
    if (is_embedding != module.is_embedding) {
      throw Error(fmt::format("{} is of {}; expected {}.", adapter_.at(*module.a),
                              is_embedding ? "an embedding" : "a linear layer",
                              is_embedding ? "lora_embedding_A" : "lora_A"));
    }
    if (weight.shape.size() != 2) {
      throw Error(fmt::format("{} is of {}, which is {} in {}; expected a matrix.",
                              adapter_.at(*module.a), name, weight.describe(), base_.name));
    }
    const int64_t outputs = weight.shape[is_embedding ? 1 : 0];
    const int64_t inputs = weight.shape[is_embedding ? 0 : 1];
    if (module.inputs() != inputs) {
      fail_shape(*module.a, name, weight, {module.rank, inputs});
    }
    if (module.outputs() != outputs) {
      fail_shape(*module.b, name, weight, {outputs, module.rank});
    }
  }

  const CheckpointTensor& found(const std::string& name, const CheckpointTensor& tensor) const {
    const CheckpointTensor* weight = base_.find(name);
    if (weight == nullptr) {
      throw Error(fmt::format("{} is for {}, which {} does not have.{}", adapter_.at(tensor), name,
                              base_.name, hint()));
    }
    if (weight->dtype != "F32" && weight->dtype != "F16" && weight->dtype != "BF16") {
      throw Error(fmt::format("{} is for {}, which is {} in {}; expected F32, F16 or BF16 there.",
                              adapter_.at(tensor), name, weight->describe(), base_.name));
    }
    return *weight;
  }

  [[noreturn]] void fail_shape(const CheckpointTensor& tensor, const std::string& name,
                               const CheckpointTensor& weight,
                               const std::vector<int64_t>& expected) const {
    throw Error(fmt::format("{} is {}; expected {}, as {} of {} is {}.{}", adapter_.at(tensor),
                            tensor.describe(), shape_text(expected), name, base_.name,
                            shape_text(weight.shape), hint()));
  }

  std::string hint() const {
    const std::string& base = adapter_.config().base_model;
    return fmt::format(" Is it an adapter of another model?{}",
                       base.empty() ? "" : fmt::format(" Its config names {}.", base));
  }

  void add_if_missing(const std::string& module, std::vector<std::string>& missing) const {
    if (!config_.targets_module(module) || adapter_.find(module) != nullptr) return;
    missing.push_back(module);
  }

  const LoraAdapter& adapter_;
  const LoraBase& base_;
  LoraConfig config_;  // as it counts for this base
};

void check_finite(const LoraAdapter& adapter, ThreadPool& pool) {
  for (const CheckpointTensor& tensor : adapter.tensors()) {
    const TensorStatistics statistics = statistics_of(tensor, pool);
    if (statistics.num_nan + statistics.num_infinite == 0) continue;
    throw Error(fmt::format("{} holds {} NaN and {} infinite of {} numbers; expected finite ones.",
                            adapter.at(tensor), statistics.num_nan, statistics.num_infinite,
                            statistics.num_values));
  }
}

}  // namespace

const CheckpointTensor* LoraBase::find(const std::string& tensor) const {
  const std::string& name = has_tied_head && tensor == kHeadWeight ? kEmbeddingWeight : tensor;
  const auto found = std::ranges::find(tensors, name, &CheckpointTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

void check_lora_fits(const LoraAdapter& adapter, const LoraBase& base, ThreadPool& pool) {
  const LoraFit fit(adapter, base);
  fit.check_shapes();
  fit.check_all_targets_are_there();
  check_finite(adapter, pool);
}

}  // namespace quire
