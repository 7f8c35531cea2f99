#include "loader/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "loader/gguf_blocks.h"
#include "loader/gguf_keys.h"
#include "loader/gguf_names.h"
#include "loader/gguf_rope.h"
#include "loader/model_limits.h"
#include "quire/error.h"

namespace quire {
namespace {

using loader_internal::GgufKeys;
using loader_internal::kMaxHeadDim;
using loader_internal::kMaxHeads;
using loader_internal::kMaxHidden;
using loader_internal::kMaxIntermediate;
using loader_internal::kMaxLayers;
using loader_internal::kMaxPositions;
using loader_internal::kMaxVocab;

constexpr std::string_view kArchitectureKey = "general.architecture";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kTokenTypesKey = "tokenizer.ggml.token_type";

struct GgufArchitecture {
  std::string_view name;
  std::string_view model_class;  // transformers' name
};

constexpr GgufArchitecture kArchitectures[] = {{"llama", "LlamaForCausalLM"},
                                               {"phi3", "Phi3ForCausalLM"},
                                               {"qwen2", "Qwen2ForCausalLM"},
                                               {"qwen3", "Qwen3ForCausalLM"}};

// Keys that change what a layer computes in ways that quire's models of these architectures don't.
constexpr std::string_view kUnsupportedKeys[] = {
    "attention.clamp_kqv",     "attention.layer_norm_epsilon",
    "attention.scale",         "attention.sliding_window_pattern",
    "attn_logit_softcapping",  "embedding_scale",
    "final_logit_softcapping", "logit_scale",
    "residual_scale",          "rope.scaling.yarn_log_multiplier"};

std::string_view model_class_of(const GgufKeys& keys) {
  std::string supported;
  for (const auto& [name, model_class] : kArchitectures) {
    if (name == keys.architecture()) return model_class;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", name);
  }
  keys.header().fail(kArchitectureKey,
                     fmt::format("is {}; supported are {}",
                                 loader_internal::shown_name(keys.architecture()), supported));
}

void refuse_unsupported_keys(const GgufKeys& keys) {
  for (const std::string_view key : kUnsupportedKeys) {
    if (keys.has(key)) keys.fail(key, "is present, which is not supported");
  }
  const int64_t experts = keys.integer("expert_count", 0, INT32_MAX).value_or(0);
  if (experts != 0) {
    keys.fail("expert_count", fmt::format("is {}; models of experts are not supported", experts));
  }
  if (!keys.boolean("attention.causal").value_or(true)) {
    keys.fail("attention.causal", "is false; only decoders are supported");
  }
}

int64_t vocab_size_of(const GgufKeys& keys) {
  const GgufTensor* embedding = keys.tensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2 || embedding->shape[0] > kMaxVocab) {
    throw Error(
        fmt::format("{}: expected a matrix token_embd.weight of at most {} rows; the file "
                    "has {}.",
                    keys.header().name(), kMaxVocab,
                    embedding == nullptr ? "no such tensor" : "one of another shape"));
  }
  return embedding->shape[0];
}

void read_gguf_heads(const GgufKeys& keys, ModelConfig& config) {
  const auto heads = keys.integer_of_layers("attention.head_count", 1, kMaxHeads);
  if (!heads) keys.fail("attention.head_count", "is missing; expected an integer");
  config.num_attention_heads = *heads;
  config.num_key_value_heads =
      keys.integer_of_layers("attention.head_count_kv", 1, *heads).value_or(*heads);
  if (*heads % config.num_key_value_heads != 0) {
    keys.fail("attention.head_count_kv", fmt::format("is {}; expected a divisor of the number of "
                                                     "heads, {}",
                                                     config.num_key_value_heads, *heads));
  }
  config.head_dim =
      keys.integer("attention.key_length", 2, kMaxHeadDim).value_or(config.hidden_size / *heads);
  if (config.head_dim < 2 || config.head_dim > kMaxHeadDim || config.head_dim % 2 != 0) {
    keys.fail("attention.key_length",
              fmt::format("(else embedding_length / attention.head_count) is {}; expected an even "
                          "number from 2 to {}",
                          config.head_dim, kMaxHeadDim));
  }
  const int64_t value_length =
      keys.integer("attention.value_length", 1, kMaxHeadDim).value_or(config.head_dim);
  if (value_length != config.head_dim) {
    keys.fail("attention.value_length",
              fmt::format("is {}; expected {}, as long as a head's keys are", value_length,
                          config.head_dim));
  }
}

// What dense weights of this file are best held as: its own type where most of its numbers are
// dense, else bfloat16.
DType dense_dtype_of(const GgufModel& model) {
  std::map<std::string_view, int64_t> values;  // of the matrices, by type
  for (const GgufModel::Part& part : model.parts()) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      if (tensor.shape.size() < 2) continue;
      values[tensor.type->name] += static_cast<int64_t>(tensor.data.size()) /
                                   tensor.type->block_bytes * tensor.type->block_values;
    }
  }
  const auto most =
      std::max_element(values.begin(), values.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == values.end() || most->first == "F32") return DType::kFloat32;
  return most->first == "F16" ? DType::kFloat16 : DType::kBFloat16;
}

// Which layers the file has in blocks, by Hugging Face's names; none where all are dense.
std::optional<QuantizationConfig> quantization_of(const GgufModel& model,
                                                  const std::string& architecture) {
  constexpr std::string_view kWeight = ".weight";
  QuantizationConfig config;
  for (const GgufModel::Part& part : model.parts()) {
    for (const GgufTensor& tensor : part.file.tensors()) {
      std::string name = hugging_face_name(architecture, tensor.name);
      if (tensor.shape.size() != 2 || !name.ends_with(kWeight)) continue;
      if (gguf_integers(*tensor.type) == nullptr) continue;
      name.resize(name.size() - kWeight.size());
      config.layers.emplace(std::move(name), WeightScheme::gguf_blocks(*tensor.type));
    }
  }
  if (config.layers.empty()) return std::nullopt;
  return config;
}

// The control tokens that end an answer in the chat formats of Qwen, Llama, Mistral, Phi and Gemma.
constexpr std::string_view kTurnEnds[] = {"<|im_end|>", "<|endoftext|>",   "<|eot_id|>",
                                          "<|eom_id|>", "<|end_of_text|>", "<|end|>",
                                          "</s>",       "<end_of_turn>"};
constexpr int64_t kControlToken = 3;

std::vector<int32_t> end_tokens(const GgufFile& header) {
  std::vector<int32_t> ids;
  const auto add = [&](int64_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(static_cast<int32_t>(id));
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = header.integer(key, 0, INT32_MAX)) add(*id);
  }
  const auto tokens = header.strings(kTokensKey);
  const auto types = header.integers(kTokenTypesKey, INT32_MIN, INT32_MAX);
  if (!tokens || !types) return ids;
  for (size_t i = 0; i < std::min(tokens->size(), types->size()); ++i) {
    const bool ends_turn =
        (*types)[i] == kControlToken &&
        std::find(std::begin(kTurnEnds), std::end(kTurnEnds), (*tokens)[i]) != std::end(kTurnEnds);
    if (ends_turn) add(static_cast<int64_t>(i));
  }
  return ids;
}

}  // namespace

ModelConfig gguf_model_config(const GgufModel& model) {
  const GgufKeys keys(model);
  ModelConfig config;
  config.architecture = model_class_of(keys);
  config.model_type = keys.architecture();
  refuse_unsupported_keys(keys);
  config.vocab_size = vocab_size_of(keys);
  config.hidden_size = keys.required_integer("embedding_length", 1, kMaxHidden);
  config.num_hidden_layers = keys.required_integer("block_count", 1, kMaxLayers);
  const auto intermediate = keys.integer_of_layers("feed_forward_length", 1, kMaxIntermediate);
  if (!intermediate) keys.fail("feed_forward_length", "is missing; expected an integer");
  config.intermediate_size = *intermediate;
  config.max_position_embeddings = keys.required_integer("context_length", 2, kMaxPositions);
  read_gguf_heads(keys, config);
  const auto epsilon = keys.number("attention.layer_norm_rms_epsilon", 1e-12, 1.0);
  if (!epsilon) keys.fail("attention.layer_norm_rms_epsilon", "is missing; expected a number");
  config.rms_norm_eps = *epsilon;
  config.tie_word_embeddings = keys.tensor("output.weight") == nullptr;
  config.attention_bias = keys.tensor("blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = keys.tensor("blk.0.ffn_gate.bias") != nullptr;
  const int64_t window = keys.integer("attention.sliding_window", 0, kMaxPositions).value_or(0);
  config.layer_sliding_window.assign(static_cast<size_t>(config.num_hidden_layers), window);
  config.dtype = dense_dtype_of(model);
  config.quantization = quantization_of(model, keys.architecture());
  config.rope =
      loader_internal::gguf_rope_config(keys, config.head_dim, config.max_position_embeddings);
  return config;
}

GenerationConfig gguf_generation_config(const GgufModel& model) {
  const GgufFile& header = model.header();
  GenerationConfig result;
  result.eos_token_ids = end_tokens(header);
  if (const auto bos = header.integer("tokenizer.ggml.bos_token_id", 0, INT32_MAX)) {
    result.bos_token_id = static_cast<int32_t>(*bos);
  }
  // The ranges are those of SamplingParams.
  result.temperature = header.number("general.sampling.temp", 0.0, 100.0);
  if (const auto top_k = header.integer("general.sampling.top_k", -1, INT32_MAX)) {
    result.top_k = static_cast<int>(*top_k);
  }
  constexpr double kAboveZero = 1e-9;
  result.top_p = header.number("general.sampling.top_p", kAboveZero, 1.0);
  result.min_p = header.number("general.sampling.min_p", 0.0, 1.0);
  result.repetition_penalty = header.number("general.sampling.penalty_repeat", kAboveZero, 10.0);
  return result;
}

}  // namespace quire
