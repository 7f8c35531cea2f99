#include "quire/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/engine_setup.h"
#include "hub/model_path.h"
#include "loader/checkpoint.h"
#include "loader/gguf_model.h"
#include "loader/tensor_rows.h"
#include "quire/model_text.h"
#include "runner/model_support.h"

namespace quire {
namespace {

std::string describe_rope(const RopeConfig& rope) {
  std::string text;
  switch (rope.type) {
    case RopeType::kDefault:
      text = "default";
      break;
    case RopeType::kLinear:
      text = fmt::format("linear, factor {}", rope.factor);
      break;
    case RopeType::kDynamicNtk:
      text = fmt::format("dynamic, factor {}", rope.factor);
      break;
    case RopeType::kYarn:
      text = fmt::format("yarn, factor {}", rope.factor);
      break;
    case RopeType::kLlama3:
      text = fmt::format("llama3, factor {}", rope.factor);
      break;
    case RopeType::kLongRope:
      text = fmt::format("longrope, factor {}", rope.factor);
      break;
  }
  text += fmt::format(", theta {}", rope.theta);
  if (rope.partial_rotary_factor != 1.0) {
    text += fmt::format(", of {} of each head", rope.partial_rotary_factor);
  }
  return text;
}

std::string describe_sliding_window(const ModelConfig& model) {
  const auto& windows = model.layer_sliding_window;
  const auto limited =
      std::count_if(windows.begin(), windows.end(), [](int64_t w) { return w > 0; });
  if (limited == 0) return "none";
  return fmt::format("{} in {} of {} layers", *std::max_element(windows.begin(), windows.end()),
                     limited, windows.size());
}

// A folder's, or the parts of a GGUF file's model.
std::vector<std::filesystem::path> paths_of(const std::filesystem::path& model) {
  if (is_gguf_path(model)) return gguf_parts(model);
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  return paths;
}

std::vector<std::string> list_files(const std::filesystem::path& model) {
  std::vector<std::string> files;
  for (const std::filesystem::path& path : paths_of(model)) {
    files.push_back(
        fmt::format("{} ({} bytes)", path.filename().string(), std::filesystem::file_size(path)));
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool has_weights(const std::filesystem::path& model) {
  return is_gguf_path(model) || std::filesystem::exists(model / "model.safetensors") ||
         std::filesystem::exists(model / "model.safetensors.index.json");
}

// A checkpoint's tensor has as many elements as its bytes hold. A tensor without elements may have
// any other sizes that its file claims.
int64_t num_elements(const CheckpointTensor& tensor) {
  if (tensor.bytes == 0) return 0;
  int64_t elements = 1;
  for (int64_t extent : tensor.shape) elements *= extent;
  return elements;
}

// How a GGUF file's tensors are quantised: "GGUF: Q4_K in 168 tensors, ..."; empty if none is.
std::string describe_blocks(const Checkpoint& checkpoint) {
  std::map<std::string, int64_t> counts;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (block_type_of(tensor) != nullptr) ++counts[tensor.dtype];
  }
  std::vector<std::string> parts;
  for (const auto& [type, count] : counts) {
    parts.push_back(fmt::format("{} in {} tensor{}", type, count, count == 1 ? "" : "s"));
  }
  if (parts.empty()) return "";
  return fmt::format("GGUF: {}", fmt::join(parts, ", "));
}

void add_tensors(const Checkpoint& checkpoint, ModelInfo& info) {
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    info.num_parameters += num_elements(tensor);
    info.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.file});
  }
  info.weight_bytes = static_cast<int64_t>(checkpoint.total_bytes());
  if (is_gguf_path(info.folder)) info.quantization = describe_blocks(checkpoint);
}

}  // namespace

MemoryPlan plan(const EngineConfig& config) {
  EngineSetup setup = set_up_engine(config);
  setup.plan.num_parameters = count_parameters(setup.executor.runner.model);
  return setup.plan;
}

MemoryPlan plan_for_gpus(const EngineConfig& config, int64_t memory_bytes) {
  EngineSetup setup = set_up_planned_gpus(config, memory_bytes);
  setup.plan.num_parameters = count_parameters(setup.executor.runner.model);
  return setup.plan;
}

ModelInfo inspect(const std::string& name) {
  const std::filesystem::path folder = resolve_model(name);
  const ModelConfig model = load_model_config(folder);
  ModelInfo info;
  info.folder = folder.string();
  info.architecture = model.architecture;
  info.unsupported_reason = why_unsupported(model).value_or("");
  info.supported = info.unsupported_reason.empty();
  info.dtype = name_of(model.dtype);
  info.quantization = describe_quantization(model);
  info.vocab_size = model.vocab_size;
  info.hidden_size = model.hidden_size;
  info.intermediate_size = model.intermediate_size;
  info.num_layers = model.num_hidden_layers;
  info.num_attention_heads = model.num_attention_heads;
  info.num_key_value_heads = model.num_key_value_heads;
  info.head_dim = model.head_dim;
  info.max_model_len = model.max_model_len();
  info.rope = describe_rope(model.rope);
  info.sliding_window = describe_sliding_window(model);
  info.tie_word_embeddings = model.tie_word_embeddings;
  info.eos_token_ids = load_generation_config(folder).eos_token_ids;
  info.has_tokenizer = has_tokenizer(folder);
  if (info.has_tokenizer) info.tokenizer_vocab_size = load_tokenizer(folder).vocab_size();
  info.has_chat_template = has_chat_template(folder);
  info.files = list_files(folder);
  // A config without weights can be planned, and run with random weights.
  if (has_weights(folder)) add_tensors(Checkpoint::open(folder), info);
  if (model.quantization && info.supported) {
    info.activations = describe_activations(model);
    // Elements of quantised tensors are several parameters, or none.
    info.num_parameters = count_parameters(model);
  }
  return info;
}

}  // namespace quire
