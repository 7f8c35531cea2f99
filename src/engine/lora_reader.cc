#include "engine/lora_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/ceil_div.h"
#include "base/memory_limit.h"
#include "base/thread_pool.h"
#include "core/buffer.h"
#include "engine/engine_setup.h"
#include "engine/lora_product.h"
#include "hub/content_hash.h"
#include "loader/lora_adapter.h"
#include "loader/lora_base.h"
#include "quantise/matrix_source.h"
#include "quire/error.h"
#include "runner/model_support.h"

namespace quire {
namespace {

constexpr std::string_view kWeightLeaf = ".weight";
constexpr std::string_view kBiasLeaf = ".bias";
constexpr std::string_view kEmbeddingModule = "model.embed_tokens";
// How many rows of the base's matrices are in memory at a time.
constexpr int64_t kRowsOfNorms = 256;

bool ends_norm_name(std::string_view name) {
  return name.ends_with(".input_layernorm.weight") ||
         name.ends_with(".post_attention_layernorm.weight") || name == "model.norm.weight";
}

std::vector<float> vector_of(const CheckpointTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.front()));
  read_floats(tensor, {0, tensor.shape.front()}, values.data());
  return values;
}

class LoraReader {
 public:
  LoraReader(const LoraAdapter& adapter, const LoraTarget& target)
      : adapter_(adapter), target_(target) {}

  LoraWeights read() {
    check_fits();
    weights_.kind = adapter_.config().kind();
    find_copies();
    check_memory();
    reserve_storage();
    for (const LoraModule& module : adapter_.modules()) add_module(module);
    for (const auto& [module, tensor] : copies_) {
      LoraLayer& layer = layer_of(module);
      layer.is_embedding = module == kEmbeddingModule;
      layer.copy = copy_of(*tensor);
    }
    for (const auto& [name, tensor] : adapter_.replaced()) add_vector(name, *tensor);
    std::ranges::sort(weights_.layers, {}, &LoraLayer::name);
    count_bytes();
    weights_.content_hash = hash();
    return std::move(weights_);
  }

  std::vector<std::string> trained_copies() {
    check_fits();
    find_copies();
    return modules_of_copies();
  }

 private:
  void check_fits() {
    for (const LoraModule& module : adapter_.modules()) {
      if (module.rank <= target_.max_rank) continue;
      const std::string limit =
          target_.max_rank == kMaxServedLoraRank
              ? fmt::format("{}, the most that is served: merge it into its base (quire merge)",
                            target_.max_rank)
              : fmt::format("--max-lora-rank, which is {}", target_.max_rank);
      throw Error(fmt::format("{}: the rank of {} is {}; expected at most {}.",
                              adapter_.folder().string(), module.name, module.rank, limit));
    }
    const LoraBase base = {target_.tensors, target_.model.string(), target_.has_tied_head};
    check_lora_fits(adapter_, base, pool_);
  }

  // `what` is a part of a sentence.
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(
        fmt::format("{}: the adapter cannot be served, as it has {}; merge it into its base "
                    "(quire merge) and serve the result.",
                    adapter_.folder().string(), what));
  }

  // The model's own weights. `use` says in a message what they are needed for.
  const Checkpoint& base(const std::string& use) {
    if (!target_.has_weights) refuse(use + ", and this model's weights are random");
    if (!checkpoint_) checkpoint_ = Checkpoint::open(target_.model);
    return *checkpoint_;
  }

  // A dense tensor of them; null where it is not dense.
  const CheckpointTensor* find_dense(const std::string& name, const std::string& use) {
    const Checkpoint& checkpoint = base(use);
    const bool is_tied_head = target_.has_tied_head && name == "lm_head.weight";
    const CheckpointTensor* tensor =
        checkpoint.find(is_tied_head ? "model.embed_tokens.weight" : name);
    const bool is_dense = tensor != nullptr && (tensor->dtype == "F32" || tensor->dtype == "BF16" ||
                                                tensor->dtype == "F16");
    return is_dense ? tensor : nullptr;
  }

  const CheckpointTensor& base_tensor(const std::string& name, const std::string& use) {
    const CheckpointTensor* tensor = find_dense(name, use);
    if (tensor == nullptr) {
      refuse(use + fmt::format(", and {} is quantised", target_.model.string()));
    }
    return *tensor;
  }

  // The adapter's matrices in place of the base's. PEFT saves an embedding beside its adapter even
  // where it was not trained.
  void find_copies() {
    for (const auto& [name, tensor] : adapter_.replaced()) {
      if (ends_norm_name(name) || name.ends_with(kBiasLeaf)) continue;
      if (target_.has_weights && is_base(name, *tensor)) continue;
      if (is_head_norm(name)) {
        weights_.norms.emplace(name, vector_of(*tensor));
        continue;
      }
      const std::string module = name.substr(0, name.size() - kWeightLeaf.size());
      if (adapter_.config().dora && adapter_.find(module) != nullptr) {
        refuse(fmt::format("DoRA of {} beside a trained copy of it", module));
      }
      copies_.emplace_back(module, tensor);
    }
  }

  // Each copy may be as large as the model's own matrix, and the memory plan has no room in main
  // memory for it.
  void check_memory() const {
    if (copies_.empty()) return;
    if (target_.gpu_needs) check_gpu_memory();
    if (!target_.memory_left) return;
    int64_t needed = 0;
    for (const auto& [module, tensor] : copies_) {
      needed += static_cast<int64_t>(tensor->bytes);
      if (target_.gpu_needs) continue;
      const int64_t packed =
          tensor->shape[0] * tensor->shape[1] * static_cast<int64_t>(size_of(target_.copy_dtype));
      needed += module == kEmbeddingModule ? packed * target_.num_embedding_ranks
                                           : ceil_div(packed, target_.num_sharing_processes);
    }
    const int64_t left = target_.memory_left();
    if (needed <= left) return;
    throw Error(fmt::format(
        "{}: the adapter's trained copies of matrices take {} bytes of memory, and {} bytes are "
        "available; merge the adapter into its base (quire merge) and serve the result.",
        adapter_.folder().string(), needed, left));
  }

  void check_gpu_memory() const {
    const GpuLoraCopies::Needs needs = target_.gpu_needs(modules_of_copies());
    if (needs.misaligned) {
      refuse(fmt::format(
          "a trained copy of {}, whose shares on the GPUs are no multiples of 8 outputs",
          *needs.misaligned));
    }
    if (needs.bytes <= target_.gpu_room) return;
    throw Error(fmt::format(
        "{}: the adapter's trained copies of matrices take {} bytes on a GPU, where "
        "--lora-copy-memory-bytes leaves {} for them; set that to {} or more, or merge the adapter "
        "into its base (quire merge) and serve the result.",
        adapter_.folder().string(), needs.bytes, target_.gpu_room, needs.bytes));
  }

  std::vector<std::string> modules_of_copies() const {
    std::vector<std::string> modules;
    for (const auto& [module, tensor] : copies_) modules.push_back(module);
    return modules;
  }

  void reserve_storage() {
    size_t bytes = 0;
    for (const auto& [module, tensor] : copies_) bytes += align_up(tensor->bytes);
    for (const LoraModule& module : adapter_.modules()) {
      bytes += align_up(module.a->bytes) + align_up(module.b->bytes);
    }
    weights_.storage = std::make_unique<std::byte[]>(bytes);
  }

  LoraMatrix copy_of(const CheckpointTensor& tensor) {
    std::byte* const to = weights_.storage.get() + stored_bytes_;
    std::memcpy(to, tensor.data, tensor.bytes);
    stored_bytes_ += align_up(tensor.bytes);
    return {.dtype = dtype_of_tensor(tensor),
            .rows = tensor.shape[0],
            .columns = tensor.shape[1],
            .bytes = {to, tensor.bytes}};
  }

  LoraLayer& layer_of(const std::string& module) {
    const auto found = std::ranges::find(weights_.layers, module, &LoraLayer::name);
    if (found != weights_.layers.end()) return *found;
    weights_.layers.push_back({.name = module});
    return weights_.layers.back();
  }

  void add_module(const LoraModule& module) {
    LoraLayer& layer = layer_of(module.name);
    layer.is_embedding = module.is_embedding;
    layer.rank = module.rank;
    layer.scale = static_cast<float>(module.scale);
    layer.a = copy_of(*module.a);
    layer.b = copy_of(*module.b);
    weights_.rank = std::max(weights_.rank, module.rank);
    if (module.b_bias != nullptr) {
      layer.added_bias = vector_of(*module.b_bias);
      for (float& bias : layer.added_bias) bias *= layer.scale;
    }
    if (module.magnitude != nullptr) layer.factor = factors_of(module);
  }

  // Reads some rows of a matrix to [rows.size(), columns].
  using RowReader = std::function<void(IndexRange rows, float* out)>;

  // Of the base's matrix of a module. That of a layer within the model may be quantised.
  RowReader base_rows_of(const LoraModule& module) {
    if (module.is_embedding || module.name == "lm_head") {
      const CheckpointTensor& tensor = base_tensor(module.name + std::string(kWeightLeaf), "DoRA");
      return [&tensor](IndexRange rows, float* out) { read_floats(tensor, rows, out); };
    }
    const MatrixShape shape = {.n = module.outputs(), .k = module.inputs()};
    const auto matrix =
        std::make_shared<MatrixSource>(base("DoRA"), target_.quantization, module.name, shape);
    return [matrix](IndexRange rows, float* out) { matrix->read_rows_to(rows, out); };
  }

  // Adds up the squares of some rows of W + scale * B A.
  static void add_squares(const RowReader& base, const LoraProduct& product, IndexRange rows,
                          std::vector<double>& squares) {
    std::vector<float> values(static_cast<size_t>(rows.size() * product.columns()));
    base(rows, values.data());
    product.add_to(rows, values.data());
    for (int64_t i = 0; i < rows.size() * product.columns(); ++i) {
      const int64_t at =
          product.is_embedding() ? i % product.columns() : rows.begin + i / product.columns();
      const double value = values[static_cast<size_t>(i)];
      squares[static_cast<size_t>(at)] += value * value;
    }
  }

  // DoRA's magnitudes, each divided by the norm of what it scales: a row of W + scale * B A, for an
  // embedding a column.
  std::vector<float> factors_of(const LoraModule& module) {
    const RowReader base = base_rows_of(module);
    const LoraProduct product(module);
    const std::vector<float>& magnitudes = product.magnitudes();
    std::vector<double> squares(magnitudes.size());
    const int64_t num_pieces = ceil_div(product.rows(), kRowsOfNorms);
    const auto add_piece = [&](int64_t piece) {
      const int64_t begin = piece * kRowsOfNorms;
      const IndexRange rows = {begin, std::min(product.rows(), begin + kRowsOfNorms)};
      add_squares(base, product, rows, squares);
    };
    if (product.is_embedding()) {  // whose pieces add to the same sums
      for (int64_t piece = 0; piece < num_pieces; ++piece) add_piece(piece);
    } else {
      pool_.parallel_for(num_pieces, [&](int64_t piece, int) { add_piece(piece); });
    }
    std::vector<float> factors(magnitudes.size());
    for (size_t i = 0; i < factors.size(); ++i) {
      factors[i] = static_cast<float>(magnitudes[i] / std::sqrt(squares[i]));
      if (std::isfinite(factors[i])) continue;
      throw Error(
          fmt::format("{}: output {} of {} has no finite scale: its weights are all zero, or "
                      "the adapter and the base do not fit together.",
                      adapter_.folder().string(), i, module.name));
    }
    return factors;
  }

  // A trained norm or bias.
  void add_vector(const std::string& name, const CheckpointTensor& tensor) {
    if (ends_norm_name(name)) {
      weights_.norms.emplace(name, vector_of(tensor));
    } else if (name.ends_with(kBiasLeaf)) {
      add_bias(name, tensor);
    }
  }

  // False also where the base's is quantised.
  bool is_base(const std::string& name, const CheckpointTensor& tensor) {
    const CheckpointTensor* const dense = find_dense(name, "a trained copy of " + name);
    if (dense == nullptr) return false;
    const CheckpointTensor& base = *dense;
    const int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : 1;
    std::vector<float> ours(static_cast<size_t>(kRowsOfNorms * columns));
    std::vector<float> theirs(ours.size());
    for (int64_t begin = 0; begin < tensor.shape[0]; begin += kRowsOfNorms) {
      const IndexRange rows = {begin, std::min(tensor.shape[0], begin + kRowsOfNorms)};
      read_floats(tensor, rows, ours.data());
      read_floats(base, rows, theirs.data());
      const auto count = static_cast<std::ptrdiff_t>(rows.size() * columns);
      if (!std::equal(ours.begin(), ours.begin() + count, theirs.begin())) return false;
    }
    return true;
  }

  void add_bias(const std::string& name, const CheckpointTensor& tensor) {
    const std::vector<float> base = vector_of(base_tensor(name, "a trained bias"));
    const std::vector<float> bias = vector_of(tensor);
    LoraLayer& layer = layer_of(name.substr(0, name.size() - kBiasLeaf.size()));
    layer.added_bias.resize(bias.size());
    for (size_t i = 0; i < bias.size(); ++i) layer.added_bias[i] += bias[i] - base[i];
  }

  void count_bytes() {
    for (const LoraLayer& layer : weights_.layers) {
      weights_.bytes += static_cast<int64_t>(
          layer.a.bytes.size() + layer.b.bytes.size() + layer.copy.bytes.size() +
          (layer.factor.size() + layer.added_bias.size()) * sizeof(float));
    }
    for (const auto& [name, weight] : weights_.norms) {
      weights_.bytes += static_cast<int64_t>(weight.size() * sizeof(float));
    }
  }

  // Each field with its length before it, so that no two contents read the same.
  std::string hash() const {
    ContentHash hash(ContentId::Kind::kSha256, 0);
    const auto add = [&hash](const void* data, size_t bytes) {
      const auto size = static_cast<uint64_t>(bytes);
      hash.update({reinterpret_cast<const char*>(&size), sizeof(size)});
      hash.update({static_cast<const char*>(data), bytes});
    };
    const auto add_floats = [&add](const std::vector<float>& values) {
      add(values.data(), values.size() * sizeof(float));
    };
    for (const LoraLayer& layer : weights_.layers) {
      add(layer.name.data(), layer.name.size());
      add(&layer.rank, sizeof(layer.rank));
      add(&layer.scale, sizeof(layer.scale));
      for (const LoraMatrix* matrix : {&layer.a, &layer.b, &layer.copy}) {
        add(&matrix->dtype, sizeof(matrix->dtype));
        add(matrix->bytes.data(), matrix->bytes.size());
      }
      add_floats(layer.factor);
      add_floats(layer.added_bias);
    }
    for (const auto& [name, weight] : weights_.norms) {
      add(name.data(), name.size());
      add_floats(weight);
    }
    return hash.finish();
  }

  const LoraAdapter& adapter_;
  const LoraTarget& target_;
  // Few: an engine's threads work meanwhile.
  ThreadPool pool_{std::min(4, cpu_topology().num_physical_cores)};
  std::optional<Checkpoint> checkpoint_;
  std::vector<std::pair<std::string, const CheckpointTensor*>> copies_;  // by their modules
  LoraWeights weights_;
  size_t stored_bytes_ = 0;
};

}  // namespace

LoraTarget lora_target(const std::filesystem::path& model, const ModelConfig& config,
                       bool has_weights, int64_t max_rank) {
  return {.model = model,
          .has_tied_head = config.tie_word_embeddings,
          .has_weights = has_weights,
          .tensors = dense_tensors(config),
          .quantization = config.quantization,
          .max_rank = max_rank};
}

LoraTarget lora_target(const EngineSetup& setup) {
  const EngineConfig& config = setup.config;
  LoraTarget target =
      lora_target(setup.folder, setup.model, config.load_format != LoadFormat::kDummy,
                  config.lora.max_lora_rank);
  const int num_nodes = setup.executor.nodes ? setup.executor.nodes->num_nodes() : 1;
  const int num_ranks = config.tensor_parallel_size * config.pipeline_parallel_size / num_nodes;
  target.copy_dtype = setup.executor.runner.model.dtype;
  target.num_embedding_ranks = std::min(config.tensor_parallel_size, num_ranks);
  // A stage has its layers' matrices whole.
  target.num_sharing_processes = config.pipeline_parallel_size == 1 ? num_nodes : 1;
  target.memory_left = [] { return memory_left(); };
  if (config.device != "cuda") return target;
  target.gpu_room = setup.executor.runner.lora_copy_bytes;
  target.gpu_needs = [model = setup.executor.runner.model,
                      num_stages =
                          config.pipeline_parallel_size](std::span<const std::string> modules) {
    return lora_copy_needs(model, num_stages, modules);
  };
  return target;
}

LoraWeights read_lora(const std::filesystem::path& folder, const LoraTarget& target) {
  const LoraAdapter adapter = LoraAdapter::read(folder);
  return LoraReader(adapter, target).read();
}

std::vector<std::string> trained_copies(const std::filesystem::path& folder,
                                        const LoraTarget& target) {
  const LoraAdapter adapter = LoraAdapter::read(folder);
  return LoraReader(adapter, target).trained_copies();
}

}  // namespace quire
