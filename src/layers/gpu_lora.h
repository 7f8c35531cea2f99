#pragma once
// Adapters in a GPU's memory, as one rank computes them: a number of slots, each with room for an
// adapter of the largest rank.
//
// A slot's matrices and vectors lie where those of the largest rank would begin. So an adapter is
// replaced in place, and CUDA graphs that were captured for other adapters stay valid. Tables on
// the GPU, with a row for each slot, say what each slot holds. What few adapters have, beyond
// matrices of linear layers within the model, is looked for only in steps whose adapters have it
// (LoraExtras). Trained copies of matrices have a room of their own (layers/gpu_lora_copies.h).
// Thread safety: one thread, the rank's worker.
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/device.h"
#include "layers/gpu_lora_copies.h"
#include "layers/gpu_lora_limits.h"
#include "layers/lora_layers.h"
#include "loader/lora_weights.h"
#include "ops/lora_slots.h"

namespace quire {

// What adapters change of a rank's layers beside linear ones within the model.
struct LoraExtras {
  bool embedding = false;
  bool norms = false;
  bool output = false;   // the output layer
  bool vectors = false;  // DoRA's factors, or added biases, of linear layers within the model
  // Copies of matrices, or of norms of queries and keys, of any rank's layers: all ranks run such a
  // step without a graph.
  bool copies = false;

  LoraExtras& operator|=(const LoraExtras& other) {
    embedding |= other.embedding;
    norms |= other.norms;
    output |= other.output;
    vectors |= other.vectors;
    copies |= other.copies;
    return *this;
  }
  auto operator<=>(const LoraExtras&) const = default;  // NOLINT(modernize-use-nullptr)
};

class GpuLora {
 public:
  // Takes bytes() of the device's memory.
  GpuLora(LoraSites sites, const GpuLoraLimits& limits, const Device& device);

  static size_t bytes(const LoraSites& sites, const GpuLoraLimits& limits);

  // Puts the rank's shares of an adapter into `slot`, and returns when they have arrived. No step
  // that reads the slot may be running.
  void store(int slot, const LoraWeights& weights, ThreadPool& pool);
  // Of the adapter in a slot.
  const LoraExtras& extras(int slot) const { return extras_[static_cast<size_t>(slot)]; }

  // Null where adapters have nothing for the layer. A tied table is two layers.
  const ops::LoraSlotLayer* find(const void* layer) const;
  const ops::LoraSlotLayer* find_embedding(const void* layer) const;
  const ops::LoraSlotNorm* find_norm(const void* layer) const;
  const GpuLoraCopies& copies() const { return copies_; }
  // Scratch of a step, for one layer at a time.
  Tensor sums(const ops::LoraSlotLayer& layer, int64_t rows) const;
  // Rows of a gated layer that are computed at a time, and room for their outputs.
  static constexpr int64_t kMostGatedRows = LoraRowOrder::kBlockRows;
  Tensor gate_up(int64_t rows, int64_t n) const;
  // What ops::lora_linear hands on between its kernels: cleared in each step.
  Tensor tiles() const;

 private:
  // Where a layer's matrices and vectors lie in a slot, in bytes.
  struct Place {
    size_t a = 0;
    size_t b[ops::kMaxLoraParts] = {};
    size_t factor[ops::kMaxLoraParts] = {};
    size_t added[ops::kMaxLoraParts] = {};
  };
  struct NormPlace {
    std::string tensor;  // of the checkpoint
    const void* layer = nullptr;
    size_t weight = 0;  // in a slot, in bytes
  };
  struct Layout {
    std::vector<const LoraSite*> sites;
    std::vector<ops::LoraSlotLayer> layers;  // without `slots`
    std::vector<Place> places;
    std::vector<NormPlace> norms;
    size_t slot_bytes = 0;
    size_t sums_bytes = 0;
    size_t gate_up_bytes = 0;
    size_t flags_bytes = 0;  // a word of each layer, then the tiles
    size_t tiles_bytes = 0;
  };
  // A matrix on its way to the GPU: `rows` rows of `columns` numbers; source has the leading ones
  // of each row.
  struct Copy {
    std::byte* to = nullptr;
    int64_t rows = 0;
    int64_t columns = 0;
    Tensor source = {};
  };
  // The same of a vector.
  struct VectorCopy {
    float* to = nullptr;
    std::span<const float> source = {};
  };
  struct Copies {
    std::vector<Copy> matrices = {};
    std::vector<VectorCopy> vectors = {};
  };

  static Layout lay_out(const LoraSites& sites, const GpuLoraLimits& limits);
  // Adds a module of the adapter to its layer's `entry`.
  void add(const LoraLayer& module, const LoraSites::Found& found, size_t site, std::byte* slot,
           ops::CudaLoraLayer& entry, Copies& copies) const;
  // Where an adapter's own weights of norms will be, of each norm; null: it has none.
  std::vector<const float*> place_norms(const LoraWeights& weights, std::byte* slot,
                                        Copies& copies) const;
  void upload(const Copy& copy) const;
  // A slot's row of a table.
  template <typename Entry>
  void upload_row(const Buffer& table, int slot, const std::vector<Entry>& row) const;

  LoraSites sites_;
  DType dtype_;
  DeviceMemory& memory_;
  Layout layout_;
  Buffer slots_;
  Buffer table_;       // CudaLoraLayer[slots][layers]
  Buffer norm_table_;  // const float*[slots][norms]
  Buffer sums_;
  Buffer gate_up_;
  Buffer tiles_;
  GpuLoraCopies copies_;
  std::unordered_map<const void*, ops::LoraSlotLayer> layers_;
  std::unordered_map<const void*, ops::LoraSlotLayer> embeddings_;
  std::unordered_map<const void*, ops::LoraSlotNorm> norms_;
  std::vector<LoraExtras> extras_;  // of each slot
};

// The rows of a step, or of a part of it, with what their adapters have.
struct GpuLoraRows {
  ops::CudaLoraRows tokens = {};
  ops::CudaLoraRows logits = {};  // of the rows whose logits are wanted; only with extras.output
  // Of both; only with extras.copies.
  LoraRowOrder token_order = {};
  LoraRowOrder logits_order = {};
  LoraExtras extras = {};
};

// Which slot each row of a step uses, and what the slots add to a layer's outputs.
class GpuLoraStep {
 public:
  GpuLoraStep(const GpuLora& adapters, GpuLoraRows rows)
      : adapters_(adapters), rows_(std::move(rows)) {}

  const LoraExtras& extras() const { return rows_.extras; }

  // Before the first layer's.
  void begin(Stream& stream) const;
  // A layer's product with what the slots add, at once, with `gated` through the activation. False:
  // it is to be computed as follows.
  bool multiply(Stream& stream, const ops::LoraSlotLayer& layer, const Tensor& in,
                const ops::Weight& weight, const Tensor& bias, bool gated, const Tensor& out) const;

  // Each is for rows [first_row, first_row + rows of `in` or `out`) of the step. For a layer call
  // shrink(), the base's product, multiply_copies(), then expand() or expand_gated(), the last two
  // with the bias that the product added; only then the next layer's, because layers share the
  // scratch.
  const ops::LoraSlotLayer* find(const void* layer) const { return adapters_.find(layer); }
  void shrink(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
              const Tensor& in) const;
  // Computes outputs anew that have a trained copy.
  void multiply_copies(Stream& stream, const void* layer, int64_t first_row, const Tensor& in,
                       const Tensor& bias, const Tensor& out) const;
  void expand(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
              const Tensor& bias, const Tensor& out) const;
  void expand_gated(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
                    const Tensor& bias, const Tensor& gate_up, const Tensor& out) const;
  Tensor gate_up(int64_t rows, int64_t n) const { return adapters_.gate_up(rows, n); }
  // All of the step's, for a kernel that runs all layers.
  const ops::CudaLoraRows& rows() const { return rows_.tokens; }

  // The same for the output layer, whose rows are those of the logits: `in` of the model's type,
  // `out` float32. Null where no adapter of the step has a part of it.
  const ops::LoraSlotLayer* find_output(const void* layer) const;
  void shrink_logits(Stream& stream, const ops::LoraSlotLayer& layer, const Tensor& in) const;
  void multiply_copies_of_logits(Stream& stream, const void* layer, const Tensor& in,
                                 const Tensor& out) const;
  void expand_logits(Stream& stream, const ops::LoraSlotLayer& layer, const Tensor& out) const;
  // Looks up rows of out [T, hidden_size] anew whose slots have a copy of the embedding, in the
  // rank's share of it, before ranks add theirs up.
  void look_up_copies(Stream& stream, const void* layer, const Tensor& token_ids,
                      const Tensor& out) const;
  // Adds to the embedding's outputs [T, hidden_size] for token_ids int32[T], all of the step's.
  void add_to_embedding(Stream& stream, const void* layer, const Tensor& token_ids,
                        const Tensor& out) const;
  // Computes the rows of `out`, all of the step's, whose adapters have a norm of their own again,
  // from `in`.
  void replace_norm(Stream& stream, const void* layer, float eps, const Tensor& in,
                    const Tensor& out) const;
  // ops::qk_norm_rope_cache for all of the step's rows, with their adapters' norms.
  void norm_rope_cache(Stream& stream, const void* q_norm, const void* k_norm, const Tensor& qkv,
                       int num_heads, const ops::QkNormRope& base, const ForwardBatch& batch,
                       const KvCacheView& cache) const;

 private:
  ops::CudaLoraRows rows_from(int64_t first_row, int64_t num_rows) const;
  // Whether layers may be computed at once.
  bool may_multiply() const;

  const GpuLora& adapters_;
  GpuLoraRows rows_;
  // Of the layer between shrink() and what expands it.
  std::unique_ptr<ops::LoraBranch> branch_ = std::make_unique<ops::LoraBranch>();
};

}  // namespace quire
