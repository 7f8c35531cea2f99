#include "models/registry.h"

#include <fmt/format.h>

#include "models/llama.h"
#include "models/mistral.h"
#include "models/qwen2.h"
#include "models/qwen3.h"
#include "quire/error.h"

namespace quire {

std::vector<ModelFamily> model_families() {
  return {llama_family(), mistral_family(), qwen2_family(), qwen3_family()};
}

namespace {

ModelFamily family_of(const ModelConfig& config) {
  std::string supported;
  for (const ModelFamily& family : model_families()) {
    if (family.architecture == config.architecture) return family;
    supported += fmt::format("{}{}", supported.empty() ? "" : ", ", family.architecture);
  }
  throw Error(fmt::format("config.json: architectures is [\"{}\"]; supported are {}.",
                          config.architecture, supported));
}

}  // namespace

std::unique_ptr<Model> create_model(const ModelOptions& options) {
  return family_of(options.config).create(options);
}

std::vector<MemoryItem> model_weight_memory(const ModelOptions& options) {
  return family_of(options.config).weight_memory(options);
}

size_t model_weight_bytes(const ModelOptions& options) {
  size_t bytes = 0;
  for (const MemoryItem& item : model_weight_memory(options)) bytes += item.bytes;
  return bytes;
}

size_t model_arena_bytes(const ModelOptions& options, int64_t max_tokens, int64_t max_logits) {
  return family_of(options.config).arena_bytes(options, max_tokens, max_logits);
}

KvCacheShape model_kv_cache_shape(const ModelOptions& options) {
  return family_of(options.config).kv_cache_shape(options);
}

std::vector<MatrixProduct> model_products(const ModelOptions& options) {
  return family_of(options.config).products(options);
}

}  // namespace quire
