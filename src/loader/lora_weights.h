#pragma once
// The weights of a LoRA adapter in host memory; ranks take their shares from here.
//
// They were compared with the model when they were read (engine/lora_reader.h). Thread safety:
// immutable once read.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace quire {

// A matrix as the adapter's file has it.
struct LoraMatrix {
  DType dtype = DType::kFloat32;  // or kBFloat16, kFloat16
  int64_t rows = 0;
  int64_t columns = 0;
  std::span<const std::byte> bytes = {};  // in LoraWeights::storage

  bool empty() const { return bytes.empty(); }
  // A view for reading only.
  Tensor tensor() const {
    auto* data = const_cast<std::byte*>(bytes.data());
    return {data, dtype, {rows, columns}};
  }
};

// The adapter changes the base's outputs W x + bias to
//
//   factor * (W x + scale * B (A x)) + bias + added_bias
//
// For an embedding, A x is the token's column of A, and there is no bias. Where the adapter has a
// trained copy of W, that takes W's place.
struct LoraLayer {
  std::string name = {};  // "model.layers.0.self_attn.q_proj"
  bool is_embedding = false;
  int64_t rank = 0;  // 0: it has no matrices, only added_bias
  float scale = 0;
  LoraMatrix a = {};               // [rank, inputs]
  LoraMatrix b = {};               // [outputs, rank]
  LoraMatrix copy = {};            // as W: [outputs, inputs], an embedding's [vocabulary, hidden]
  std::vector<float> factor = {};  // [outputs], of DoRA; empty: 1
  std::vector<float> added_bias = {};  // [outputs]; empty: 0
};

// Whether the base's tensor of this name is a norm of queries or keys.
inline bool is_head_norm(std::string_view name) {
  return name.ends_with(".q_norm.weight") || name.ends_with(".k_norm.weight");
}

struct LoraWeights {
  // Equal numbers mean equal weights; the store that keeps them gives the numbers, from 1.
  uint64_t id = 0;
  std::string content_hash = {};
  std::string kind = {};  // LoraConfig::kind()
  int64_t rank = 0;       // the largest
  int64_t bytes = 0;
  std::vector<LoraLayer> layers = {};
  // All matrices in one piece: with thousands of adapters, separate pieces would be more than a
  // process may map.
  std::unique_ptr<std::byte[]> storage = {};
  // The adapter's trained copies of norms, by the names of the base's tensors.
  std::map<std::string, std::vector<float>, std::less<>> norms = {};

  // Of matrices, or of norms of queries and keys.
  bool has_copies() const {
    return std::ranges::any_of(layers, [](const auto& layer) { return !layer.copy.empty(); }) ||
           std::ranges::any_of(norms, [](const auto& norm) { return is_head_norm(norm.first); });
  }
};

}  // namespace quire
