#pragma once
// State of one forward pass of one rank, handed from the runner down through every layer.
//
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <span>

#include "core/buffer.h"
#include "core/forward_batch.h"
#include "core/kv_cache_view.h"
#include "core/stream.h"
#include "dist/communicator.h"
#include "layers/gpu_lora.h"
#include "layers/lora_step.h"
#include "ops/weight.h"

namespace quire {

// Sees the inputs of each of the decoder's linear layers, for calibration.
class LinearObserver {
 public:
  virtual ~LinearObserver() = default;
  // Called before the product in [T, k] * weight^T is computed. An exception ends the pass.
  virtual void observe(const ops::Weight& weight, const Tensor& in) = 0;
};

// The inputs of some of a decoder's layers, which a pass hands out beside its result: what a head
// that makes drafts sees of the model (models/eagle_head.h).
struct AuxStates {
  std::span<const int64_t> layers;  // of the model, ascending; their number: its output layer
  Tensor rows;                      // int32[R]: of the batch
  bool has_all_rows = false;        // `rows` are 0, 1, ... num_tokens - 1
  Tensor out;                       // activations [R, layers * hidden_size], layer by layer
};

struct ForwardContext {
  Stream& stream;
  DType dtype;  // of activations: Placement::activation_dtype()
  Arena& arena;
  Communicator& comm;
  const ForwardBatch& batch;
  // Whether each rank gets only the logits of its share of the rows (RowShare), instead of all.
  bool splits_logits = false;
  LinearObserver* observer = nullptr;  // null: nobody looks
  // Null: all rows are the base's. The first is the CPU's, the second a GPU's.
  const LoraStep* lora = nullptr;
  const GpuLoraStep* gpu_lora = nullptr;
  // Null: nobody asks for them.
  const AuxStates* aux = nullptr;
};

}  // namespace quire
