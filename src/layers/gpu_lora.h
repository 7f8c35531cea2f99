#pragma once
// Adapters in a GPU's memory, as one rank computes them: a number of slots, each with room for an
// adapter of the largest rank.
//
// A slot's matrices and vectors lie where those of the largest rank would begin. So an adapter is
// replaced in place, and CUDA graphs that were captured for other adapters stay valid. A table on
// the GPU, with a row for each slot, says what each slot holds. Adapters change only linear layers
// within the model here; engine/lora_reader.h refuses the rest. Thread safety: one thread, the
// rank's worker.
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/thread_pool.h"
#include "core/buffer.h"
#include "core/device.h"
#include "layers/lora_layers.h"
#include "loader/lora_weights.h"
#include "ops/lora_slots.h"

namespace quire {

struct GpuLoraLimits {
  int max_loras = 0;
  int64_t max_rank = 0;
  int64_t max_rows = 0;  // in a step
  DType dtype = DType::kFloat32;
};

class GpuLora {
 public:
  // Takes bytes() of the device's memory.
  GpuLora(LoraSites sites, const GpuLoraLimits& limits, const Device& device);

  static size_t bytes(const LoraSites& sites, const GpuLoraLimits& limits);

  // Puts the rank's shares of an adapter into `slot`, and returns when they have arrived. No step
  // that reads the slot may be running.
  void store(int slot, const LoraWeights& weights, ThreadPool& pool);

  // Null where adapters have nothing for the layer.
  const ops::LoraSlotLayer* find(const void* layer) const;
  // Scratch of a step, for one layer at a time.
  Tensor sums(const ops::LoraSlotLayer& layer, int64_t rows) const;
  // Rows of a gated layer that are computed at a time, and room for their outputs.
  static constexpr int64_t kMostGatedRows = 4096;
  Tensor gate_up(int64_t rows, int64_t n) const;

 private:
  // Where a layer's matrices and vectors lie in a slot, in bytes.
  struct Place {
    size_t a = 0;
    size_t b[ops::kMaxLoraParts] = {};
    size_t factor[ops::kMaxLoraParts] = {};
    size_t added[ops::kMaxLoraParts] = {};
  };
  struct Layout {
    std::vector<const LoraSite*> sites;
    std::vector<ops::LoraSlotLayer> layers;  // without `slots`
    std::vector<Place> places;
    size_t slot_bytes = 0;
    size_t sums_bytes = 0;
    size_t gate_up_bytes = 0;
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
  void upload(const Copy& copy) const;

  LoraSites sites_;
  DType dtype_;
  DeviceMemory& memory_;
  Layout layout_;
  Buffer slots_;
  Buffer table_;  // CudaLoraLayer[slots][layers]
  Buffer sums_;
  Buffer gate_up_;
  std::unordered_map<const void*, ops::LoraSlotLayer> layers_;
};

// Which slot each row of a step uses, and what the slots add to a layer's outputs.
class GpuLoraStep {
 public:
  GpuLoraStep(const GpuLora& adapters, const ops::CudaLoraRows& rows)
      : adapters_(adapters), rows_(rows) {}

  // Each is for rows [first_row, first_row + rows of `in` or `out`) of the step. For a layer call
  // shrink(), the base's product, then expand() or expand_gated() with the bias that the product
  // added; only then the next layer's, because layers share the scratch.
  const ops::LoraSlotLayer* find(const void* layer) const { return adapters_.find(layer); }
  void shrink(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
              const Tensor& in) const;
  void expand(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
              const Tensor& bias, const Tensor& out) const;
  void expand_gated(Stream& stream, const ops::LoraSlotLayer& layer, int64_t first_row,
                    const Tensor& bias, const Tensor& gate_up, const Tensor& out) const;
  Tensor gate_up(int64_t rows, int64_t n) const { return adapters_.gate_up(rows, n); }
  // All of the step's, for a kernel that runs all layers.
  const ops::CudaLoraRows& rows() const { return rows_; }

 private:
  ops::CudaLoraRows rows_from(int64_t first_row, int64_t num_rows) const;

  const GpuLora& adapters_;
  ops::CudaLoraRows rows_;
  // Of the layer between shrink() and what expands it.
  std::unique_ptr<ops::LoraBranch> branch_ = std::make_unique<ops::LoraBranch>();
};

}  // namespace quire
