#pragma once
// The model families that quire knows, by the name in config.json's `architectures`.
//
// Everything here but create_model allocates no weight: a plan is computed before anything is
// loaded. Errors: an architecture, activation or parallel size that isn't supported throws Error
// naming the field, its value and what is supported. Thread safety: free functions without state.
#include <memory>
#include <string_view>
#include <vector>

#include "layers/linear.h"
#include "models/model.h"

namespace quire {

struct ModelFamily {
  std::string_view architecture;  // "Qwen3ForCausalLM"
  std::unique_ptr<Model> (*create)(const ModelOptions&);
  std::vector<MemoryItem> (*weight_memory)(const ModelOptions&);
  size_t (*arena_bytes)(const ModelOptions&, int64_t max_tokens, int64_t max_logits);
  KvCacheShape (*kv_cache_shape)(const ModelOptions&);
  std::vector<MatrixProduct> (*products)(const ModelOptions&);
};

std::vector<ModelFamily> model_families();

// With zero weights.
std::unique_ptr<Model> create_model(const ModelOptions& options);

// The rank's weights and tables, part by part, exactly as create_model allocates them.
std::vector<MemoryItem> model_weight_memory(const ModelOptions& options);
// Their sum.
size_t model_weight_bytes(const ModelOptions& options);

// The most that forward and compute_logits take from the arena for a batch of at most max_tokens
// tokens and max_logits rows of logits; reached exactly by a batch of that size. What a later stage
// gets from the one before is counted too, whether the runner allocates it in the arena or not.
size_t model_arena_bytes(const ModelOptions& options, int64_t max_tokens, int64_t max_logits);

KvCacheShape model_kv_cache_shape(const ModelOptions& options);

// The matrix products that a rank's step is made of, each kind once.
std::vector<MatrixProduct> model_products(const ModelOptions& options);

}  // namespace quire
