#pragma once
// An adapter as one rank computes it: beside each of the rank's layers, the adapter's share there.
//
// A model says with LoraSites which module of a checkpoint is which of its layers, and how the rank
// holds it. Thread safety: const use is free.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/device.h"
#include "layers/sharding.h"
#include "loader/lora_weights.h"
#include "loader/parameter.h"
#include "ops/weight.h"

namespace quire {

// A matrix that adapters may add to. `layer` is the key that its forward pass asks with.
struct LoraSite {
  const void* layer = nullptr;
  int64_t n = 0;  // outputs of this rank
  int64_t k = 0;  // inputs of this rank
  // Parts of the weight: the place in it of each of the checkpoint's modules, and which share the
  // rank has. An embedding has one part, the whole.
  std::vector<ParameterPart> parts = {};
  bool adds_bias = true;  // or another rank does
  bool is_embedding = false;
  bool is_output = false;  // the output layer
};

// A norm whose weight adapters may replace; `layer` as LoraSite has it.
struct LoraNormSite {
  const void* layer = nullptr;
  int64_t size = 0;
  bool of_heads = false;  // of queries or keys
};

class LoraSites {
 public:
  explicit LoraSites(PackedModules packed = {}) : packed_(std::move(packed)) {}

  void add(const std::string& module, LoraSite site) { sites_.emplace(module, std::move(site)); }
  // `tensor` is the name of the norm's weight in a checkpoint.
  void add_norm(const std::string& tensor, LoraNormSite site) { norms_.emplace(tensor, site); }

  struct Found {
    const LoraSite* site = nullptr;
    std::optional<size_t> part = {};  // none: the module is all of its parts
  };
  // No site where the rank has no such module.
  Found find(std::string_view module) const;
  // Null where the rank has no such norm.
  const void* find_norm(std::string_view tensor) const;
  const std::map<std::string, LoraSite, std::less<>>& all() const { return sites_; }
  const std::map<std::string, LoraNormSite, std::less<>>& norms() const { return norms_; }

 private:
  PackedModules packed_;
  std::map<std::string, LoraSite, std::less<>> sites_;
  std::map<std::string, LoraNormSite, std::less<>> norms_;
};

// What an adapter adds to some of a layer's outputs.
struct LoraPart {
  int64_t first_output = 0;
  int64_t num_outputs = 0;
  int64_t first_rank = 0;  // in LoraShare::a
  int64_t rank = 0;        // 0: only added_bias
  float scale = 0;
  ops::Weight b = {};  // [num_outputs, rank]
  // The adapter's own matrix in place of the base's: [num_outputs, k].
  std::optional<ops::Weight> copy = {};
  Tensor factor = {};      // float32[num_outputs], or undefined: 1
  Tensor added_bias = {};  // float32[num_outputs], or undefined: 0
};

// A rank's share of what an adapter adds to a layer. For an embedding `a` is [vocab_size, rank],
// and its one part's `copy` [vocab_size, n].
struct LoraShare {
  std::optional<ops::Weight> a = {};  // [sum of the parts' ranks, k]
  std::vector<LoraPart> parts = {};

  bool has_copies() const;
};

class LoraMemory;

class LoraLayers {
 public:
  // Matrices are held in `dtype`: float32 or bfloat16. They are packed on `pool`.
  LoraLayers(const LoraWeights& weights, const LoraSites& sites, DType dtype, ThreadPool& pool);
  ~LoraLayers();
  LoraLayers(LoraLayers&&) noexcept;
  LoraLayers& operator=(LoraLayers&&) noexcept;

  // Null where the adapter has nothing for the layer.
  const LoraShare* find(const void* layer) const;
  const LoraShare* find_embedding(const void* layer) const;
  // The norm's own weight, float32; undefined where it is the base's.
  Tensor find_norm(const void* layer) const;

 private:
  Tensor keep(const std::vector<float>& values, IndexRange range);
  // Rows of a matrix of the adapter, and the weight that they go to.
  struct Packing {
    LoraShare* share = nullptr;
    std::optional<size_t> part = {};  // whose b or copy it is; none: the share's a
    bool is_copy = false;
    int64_t first_row = 0;
    Tensor source = {};
  };

  ops::Weight weight(int64_t n, int64_t k) const;
  void add(const LoraLayer& layer, const LoraSites::Found& found, LoraShare& share,
           std::vector<Packing>& packings);
  // The same for the trained copy of the share's last part.
  void add_copy(LoraShare& share, const Tensor& source, std::vector<Packing>& packings);
  static ops::Weight& weight_of(const Packing& packing);
  static void pack(std::span<const Packing> packings, ThreadPool& pool);
  void add_embedding(const LoraLayer& layer, LoraShare& share, std::vector<Packing>& packings);

  DType dtype_;
  std::unique_ptr<LoraMemory> memory_;
  std::unordered_map<const void*, LoraShare> shares_;
  std::unordered_map<const void*, LoraShare> embeddings_;
  std::unordered_map<const void*, Tensor> norms_;
};

// Bytes of an adapter of `rank` in all layers, at most, without its trained copies of matrices.
size_t lora_bytes(const LoraSites& sites, int64_t rank, DType dtype);

}  // namespace quire
