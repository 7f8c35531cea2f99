#pragma once
// Adapters' trained copies of matrices, and of norms of queries and keys, in a GPU's memory, and
// what layers compute with them.
//
// Each slot has room for so many bytes of matrices, where an adapter's lie one after the other,
// dense and of the activations' type. Each rank has its shares of them, as of the base's. Few
// adapters have copies, and these are large. So a step with some has no graph: the host knows which
// rows have which slot, and multiplies a slot's rows by its copy, over what the base has computed.
// Rows that do not follow each other are gathered for that, and scattered behind it.
//
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/forward_batch.h"
#include "core/kv_cache_view.h"
#include "core/stream.h"
#include "layers/gpu_lora_limits.h"
#include "layers/lora_layers.h"
#include "loader/lora_weights.h"
#include "ops/attention.h"
#include "ops/weight.h"

namespace quire {

// Rows of a step with the same slot, within a block of rows.
struct LoraRowGroup {
  int32_t slot = -1;      // -1: they have no adapter
  int64_t first_row = 0;  // the first, of the step
  int64_t begin = 0;      // the group's first place in the arrays of LoraRowOrder
  int64_t count = 0;
  bool is_run = false;  // they follow each other
};

// Rows of a step in the order of their slots, block by block.
struct LoraRowOrder {
  // A layer may compute a step in several parts, which begin where blocks do.
  static constexpr int64_t kBlockRows = 4096;

  std::vector<LoraRowGroup> groups = {};
  // On the GPU: group by group the rows, counted from the beginning of their block; twice.
  const int32_t* rows = nullptr;
  const int64_t* wide_rows = nullptr;
};

class GpuLoraCopies {
 public:
  // Takes bytes() of the device's memory.
  GpuLoraCopies(const LoraSites& sites, const GpuLoraLimits& limits, const Device& device);

  static size_t bytes(const LoraSites& sites, const GpuLoraLimits& limits);

  // What trained copies of some modules' matrices take of a rank's slot.
  struct Needs {
    int64_t bytes = 0;
    // A module whose copy no kernel takes: its outputs on the rank do not begin, or end, at a
    // multiple of 8.
    std::optional<std::string> misaligned = {};
  };
  static Needs needs(const LoraSites& sites, std::span<const std::string> modules, DType dtype);

  // Puts the rank's shares of an adapter's copies into `slot`; they are there when the device's
  // memory has finished its uploads. No step that reads the slot may be running.
  void store(int slot, const LoraSites& sites, const LoraWeights& weights, ThreadPool& pool);

  // Computes outputs of a layer anew, those for which the rows' slots have a copy. in [R, k], out
  // [R, n]: rows of the step from first_row on, a multiple of kBlockRows. `bias`: the base's, which
  // is added, or undefined.
  void multiply(Stream& stream, const LoraRowOrder& order, const void* layer, int64_t first_row,
                const Tensor& in, const Tensor& bias, const Tensor& out) const;
  // The same of an embedding, for all rows of the step: token_ids int32[T], out [T, hidden_size].
  // Of a token that another rank has a row becomes zeros, as the base's.
  void look_up(Stream& stream, const LoraRowOrder& order, const void* layer,
               const Tensor& token_ids, const Tensor& out) const;
  // ops::qk_norm_rope_cache for all rows of the step, with the norms of each row's slot where it
  // has some. q_norm, k_norm: the layers of these norms.
  void norm_rope_cache(Stream& stream, const LoraRowOrder& order, const void* q_norm,
                       const void* k_norm, const Tensor& qkv, int num_heads,
                       const ops::QkNormRope& base, const ForwardBatch& batch,
                       const KvCacheView& cache) const;

 private:
  // A rank's share of a copy.
  struct Matrix {
    int64_t first_output = 0;  // in the layer
    int64_t first_id = 0;      // of an embedding
    ops::Weight weight = {};
  };
  struct Slot {
    std::unique_ptr<DeviceMemory> room = {};
    std::unordered_map<const void*, std::vector<Matrix>> layers = {};
    std::unordered_map<const void*, Matrix> embeddings = {};
    std::unordered_map<const void*, Tensor> head_norms = {};  // float32[head_dim]
  };
  // Some rows of a group, on the GPU.
  struct GatheredRows {
    Tensor rows = {};       // int32
    Tensor wide_rows = {};  // int64
  };

  static size_t slot_bytes(const LoraSites& sites, const GpuLoraLimits& limits);
  static size_t scratch_bytes(const LoraSites& sites, const GpuLoraLimits& limits);
  const Slot* slot_of(const LoraRowGroup& group) const;
  ops::Weight pack(Slot& slot, const Tensor& source, ThreadPool& pool) const;
  static void multiply(Stream& stream, std::span<const Matrix> matrices, const Tensor& in,
                       const Tensor& bias, const Tensor& out);
  // Calls body(rows) for pieces of a group, each with room for row_bytes a row in the scratch.
  template <typename Body>
  void in_pieces(const LoraRowOrder& order, const LoraRowGroup& group, size_t row_bytes,
                 const Body& body) const;

  DType dtype_;
  DeviceMemory& memory_;
  size_t slot_bytes_;
  Buffer room_;
  mutable Arena scratch_;  // empty between calls
  std::vector<Slot> slots_;
};

}  // namespace quire
