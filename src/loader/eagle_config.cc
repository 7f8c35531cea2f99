#include "loader/eagle_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/json_text.h"
#include "base/lower_case.h"
#include "base/mapped_file.h"
#include "loader/json_fields.h"
#include "loader/model_limits.h"
#include "quire/error.h"

namespace quire {
namespace {

using loader_internal::JsonFields;
using loader_internal::kMaxHidden;
using loader_internal::kMaxVocab;

constexpr size_t kMaxEagleConfigBytes = 4 << 20;
constexpr int kMaxEagleConfigDepth = 32;
constexpr const char* kAuxLayers = "eagle_aux_hidden_state_layer_ids";

// Publishers write the name before or behind that of the model, and "EAGLE" or "Eagle".
bool has_name(std::string_view architecture, std::string_view name) {
  return lower_case(architecture).find(name) != std::string::npos;
}

bool is_eagle3(const std::string& architecture) {
  return has_name(architecture, "eagle3");
}

// EAGLE heads are also published as models of their layers.
bool is_eagle(const std::string& architecture) {
  return architecture == "LlamaForCausalLM" || architecture == "Qwen3ForCausalLM" ||
         (has_name(architecture, "eagle") && !is_eagle3(architecture));
}

// Throws Error unless the file says that it is such a head.
void check_kind(const JsonFields& config, EagleKind kind, bool is_speculators) {
  if (kind == EagleKind::kEagle) {
    const auto names = config.strings("architectures");
    if (!is_speculators && names && !names->empty() && is_eagle(names->front())) return;
    config.fail(is_speculators ? "speculators_model_type" : "architectures",
                "names no EAGLE head; expected [\"LlamaForCausalLM\"], "
                "[\"LlamaForCausalLMEagle\"] or the like; method \"eagle3\" takes EAGLE-3 heads");
  }
  if (is_speculators) {
    if (config.string("speculators_model_type") != "eagle3") {
      config.fail_value("speculators_model_type", "\"eagle3\"");
    }
    return;
  }
  const auto names = config.strings("architectures");
  if (!names || names->empty() || !is_eagle3(names->front())) {
    config.fail("architectures",
                "names no EAGLE-3 head; expected [\"LlamaForCausalLMEagle3\"], "
                "[\"Eagle3LlamaForCausalLM\"] or the like");
  }
}

// The sizes of the layers, which are a Llama's or a Qwen3's.
ModelConfig parse_layers(const nlohmann::ordered_json& json, const std::string& name,
                         bool is_speculators) {
  nlohmann::ordered_json layers = is_speculators ? json.at("transformer_layer_config") : json;
  const JsonFields fields(layers, name);
  const std::string type = fields.string("model_type").value_or("llama");
  if (type != "llama" && type != "qwen3") {
    fields.fail_value("model_type", "\"llama\" or \"qwen3\", whose layers a head has");
  }
  layers["architectures"] = {type == "qwen3" ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
  layers["tie_word_embeddings"] = false;
  if (is_speculators && json.contains("quantization_config")) {
    layers["quantization_config"] = json["quantization_config"];
  }
  return parse_model_config(layers.dump(), name);
}

// As vLLM's field, layers whose inputs count; as SGLang's, in eagle_config, those whose outputs do.
std::vector<int64_t> parse_aux_layers(const JsonFields& config, const ModelConfig& target) {
  const int64_t num_layers = target.num_hidden_layers;
  std::vector<int64_t> layers;
  if (const auto ids = config.integers(kAuxLayers, 0, num_layers - 1); ids && !ids->empty()) {
    layers = *ids;
  } else if (const auto nested = config.object("eagle_config")) {
    if (!nested->boolean("use_aux_hidden_state").value_or(true)) {
      nested->fail_value("use_aux_hidden_state", "true: heads without such states are not taken");
    }
    layers = nested->integers(kAuxLayers, 0, num_layers - 2).value_or(std::vector<int64_t>{});
    for (int64_t& layer : layers) ++layer;
  }
  const bool are_given = !layers.empty();
  if (!are_given) layers = {2, num_layers / 2, num_layers - 3};
  std::ranges::sort(layers);
  if (std::ranges::adjacent_find(layers) != layers.end() || layers.size() > kMaxAuxLayers ||
      layers.front() < 0) {
    config.fail(kAuxLayers,
                are_given ? fmt::format("has {} layers, or one twice; expected 1 to {} that differ",
                                        layers.size(), kMaxAuxLayers)
                          : fmt::format("is missing, and the model has {} layers; without it 7 or "
                                        "more are needed: 2, half of them and the last but two",
                                        num_layers));
  }
  return layers;
}

void refuse_unknown_norms(const JsonFields& config) {
  for (const char* field : {"norm_before_fc", "fc_norm", "norm_output"}) {
    if (config.boolean(field).value_or(false)) {
      config.fail_value(field, "false: heads with it are not supported");
    }
  }
}

// What an EAGLE head makes is read as the target's hidden state, by the target's output layer.
void check_eagle_sizes(const JsonFields& config, const EagleConfig& head) {
  if (head.layers.hidden_size != head.target_hidden_size) {
    config.fail_value("hidden_size",
                      fmt::format("the model's, {}, in an EAGLE head", head.target_hidden_size));
  }
  if (head.draft_vocab_size != head.layers.vocab_size) {
    config.fail_value("draft_vocab_size",
                      fmt::format("vocab_size, {}, in an EAGLE head", head.layers.vocab_size));
  }
}

template <typename Integer>
int64_t integer_at(const CheckpointTensor& tensor, int64_t index) {
  Integer value = 0;
  std::memcpy(&value, tensor.data + static_cast<size_t>(index) * sizeof value, sizeof value);
  return value;
}

// The tensor d2t: by draft id, what is to be added for the target's id.
std::vector<int32_t> read_draft_ids(const CheckpointTensor& tensor, const EagleConfig& config) {
  const bool is_narrow = tensor.dtype == "I32";
  if ((tensor.dtype != "I64" && !is_narrow) ||
      tensor.shape != std::vector{config.draft_vocab_size}) {
    throw Error(fmt::format("{}: the tensor d2t is {}; expected [{}] I64 or I32.", tensor.file,
                            tensor.describe(), config.draft_vocab_size));
  }
  std::vector<int32_t> ids;
  std::set<int64_t> taken;
  for (int64_t draft = 0; draft < config.draft_vocab_size; ++draft) {
    const int64_t offset =
        is_narrow ? integer_at<int32_t>(tensor, draft) : integer_at<int64_t>(tensor, draft);
    const int64_t vocab = config.layers.vocab_size;
    if (offset < -draft || offset >= vocab - draft || !taken.insert(draft + offset).second) {
      throw Error(
          fmt::format("{}: the tensor d2t makes draft token {} the model's token {}; expected one "
                      "from 0 to {} that no other draft token is.",
                      tensor.file, draft, offset + draft, vocab - 1));
    }
    ids.push_back(static_cast<int32_t>(draft + offset));
  }
  return ids;
}

}  // namespace

EagleConfig parse_eagle_config(std::string_view text, const std::string& name, EagleKind kind,
                               const ModelConfig& target) {
  const nlohmann::ordered_json json =
      parse_json_object(text, name, {.max_depth = kMaxEagleConfigDepth});
  const JsonFields config(json, name);
  const bool is_speculators = config.has("speculators_model_type");
  check_kind(config, kind, is_speculators);
  if (is_speculators && !config.object("transformer_layer_config")) {
    config.fail("transformer_layer_config", "is missing; expected an object");
  }
  refuse_unknown_norms(config);
  EagleConfig result;
  result.kind = kind;
  result.layers = parse_layers(json, name, is_speculators);
  if (result.layers.vocab_size != target.vocab_size) {
    config.fail("vocab_size", fmt::format("is {}, and that of the model {}; expected the same",
                                          result.layers.vocab_size, target.vocab_size));
  }
  result.target_hidden_size =
      config.integer("target_hidden_size", 1, kMaxHidden).value_or(result.layers.hidden_size);
  if (result.target_hidden_size != target.hidden_size) {
    config.fail(config.has("target_hidden_size") ? "target_hidden_size" : "hidden_size",
                fmt::format("is {}, and hidden_size of the model {}; expected the same",
                            result.target_hidden_size, target.hidden_size));
  }
  result.draft_vocab_size =
      config.integer("draft_vocab_size", 1, kMaxVocab).value_or(target.vocab_size);
  if (result.draft_vocab_size > target.vocab_size) {
    config.fail_value("draft_vocab_size", fmt::format("at most vocab_size, {}", target.vocab_size));
  }
  if (kind == EagleKind::kEagle) {
    check_eagle_sizes(config, result);
    result.aux_layers = {target.num_hidden_layers};
    return result;
  }
  result.aux_layers = parse_aux_layers(config, target);
  result.norm_before_residual = config.boolean("norm_before_residual").value_or(false);
  return result;
}

void add_eagle_tensors(const Checkpoint& checkpoint, EagleConfig& config) {
  const auto has = [&](std::string_view name) { return checkpoint.find(name) != nullptr; };
  const auto has_module = [&](const std::string& name) {
    return std::ranges::any_of(checkpoint.tensors(), [&](const CheckpointTensor& tensor) {
      return tensor.name.starts_with(name + ".");
    });
  };
  config.has_embedding = has_module("embed_tokens");
  config.has_output_table = has_module("lm_head");
  config.fc_bias = has("fc.bias");
  config.first_layer = has_module("midlayer") ? "midlayer" : "layers.0";
  config.qk_norm = has(config.first_layer + ".self_attn.q_norm.weight");
  const int64_t vocab = config.layers.vocab_size;
  if (const CheckpointTensor* d2t = checkpoint.find("d2t")) {
    config.draft_ids = read_draft_ids(*d2t, config);
  } else if (config.draft_vocab_size != vocab) {
    throw Error(
        fmt::format("the checkpoint has no tensor d2t, and draft_vocab_size is {}; expected the "
                    "tensor, or the model's {} tokens.",
                    config.draft_vocab_size, vocab));
  }
  if (!config.has_output_table && (config.draft_vocab_size != vocab ||
                                   config.layers.hidden_size != config.target_hidden_size)) {
    throw Error(
        "the checkpoint has no lm_head.weight; only a head with the model's vocabulary and "
        "hidden_size can take the model's.");
  }
  if (!config.has_embedding && config.layers.hidden_size != config.target_hidden_size) {
    throw Error(
        "the checkpoint has no embed_tokens.weight; only a head with the model's hidden_size can "
        "take the model's.");
  }
}

namespace {

EagleConfig read_eagle_config(const std::filesystem::path& folder, EagleKind kind,
                              const ModelConfig& target) {
  const std::string path = (folder / "config.json").string();
  return parse_eagle_config(read_text_file(path, kMaxEagleConfigBytes), path, kind, target);
}

}  // namespace

EagleConfig load_eagle_config(const std::filesystem::path& folder, EagleKind kind,
                              const ModelConfig& target) {
  EagleConfig config = read_eagle_config(folder, kind, target);
  add_eagle_tensors(Checkpoint::open(folder), config);
  return config;
}

EagleConfig load_dummy_eagle_config(const std::filesystem::path& folder, EagleKind kind,
                                    const ModelConfig& target) {
  for (const char* file : {"model.safetensors", "model.safetensors.index.json"}) {
    if (std::filesystem::exists(folder / file)) return load_eagle_config(folder, kind, target);
  }
  EagleConfig config = read_eagle_config(folder, kind, target);
  if (kind == EagleKind::kEagle) {
    config.first_layer = "layers.0";
    return config;
  }
  config.has_embedding = config.layers.hidden_size != config.target_hidden_size;
  config.has_output_table = true;
  if (config.draft_vocab_size < config.layers.vocab_size) {
    config.draft_ids.resize(static_cast<size_t>(config.draft_vocab_size));
    std::iota(config.draft_ids.begin(), config.draft_ids.end(), 0);
  }
  return config;
}

}  // namespace quire
