#pragma once
// The adapters of one step: which rows use which adapter, and what these add to each layer's
// outputs.
//
// A row's result depends only on its input and its adapter, bit for bit, like the base's.
// Thread safety: one thread, the rank's worker.
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "layers/lora_layers.h"

namespace quire {

class LoraStep {
 public:
  // adapters[t] is the adapter of the batch's row t, null for the base; at least one is not null.
  // `scratch` has at least scratch_bytes() free; it must outlive the step.
  LoraStep(std::vector<const LoraLayers*> adapters, Arena& scratch);

  // For layers of these widths and adapters of `rank`.
  static size_t scratch_bytes(const LoraSites& sites, int64_t rank);

  // Adds to `out`, the layer's outputs for `in`: rows of the batch from first_row on. `bias`: the
  // one that the base added, or undefined.
  void add(Stream& stream, const void* layer, int64_t first_row, const Tensor& in,
           const Tensor& bias, const Tensor& out) const;
  // The same for the output layer: row i of `in` and `out` is row rows[i] of the batch.
  void add_to_logits(Stream& stream, const void* layer, std::span<const int32_t> rows,
                     const Tensor& in, const Tensor& out) const;
  // The same for the embedding: token_ids int32[T], out [T, hidden_size] its outputs.
  void add_to_embedding(Stream& stream, const void* layer, const Tensor& token_ids,
                        const Tensor& out) const;
  // Computes the rows of `out` whose adapters have a norm of their own again, from `in`.
  void replace_norm(Stream& stream, const void* layer, float eps, const Tensor& in,
                    const Tensor& out) const;
  // For each row its adapter's own weight of a norm, or else `base`; empty where no adapter has
  // one.
  std::vector<const float*> norms_of_rows(const void* layer, const Tensor& base) const;

 private:
  // An adapter and its rows, in order.
  struct Group {
    const LoraLayers* adapter = nullptr;
    std::vector<int32_t> rows;
  };

  static std::vector<Group> groups_of(std::span<const LoraLayers* const> adapters);
  // Calls body(rows) for pieces of `rows` that fit the scratch; each row needs `width` floats.
  template <typename Body>
  void in_pieces(std::span<const int32_t> rows, int64_t width, const Body& body) const;
  void add_share(Stream& stream, const LoraShare& share, std::span<const int32_t> rows,
                 const Tensor& in, const Tensor& bias, const Tensor& out) const;
  // Computes the outputs of parts with a trained copy anew, from x [rows.size(), k].
  void multiply_copies(Stream& stream, const LoraShare& share, std::span<const int32_t> rows,
                       const Tensor& x, const Tensor& bias, const Tensor& out) const;
  // Adds the parts' products with u [rows.size(), ranks].
  void add_parts(Stream& stream, const LoraShare& share, std::span<const int32_t> rows,
                 const Tensor& u, const Tensor& bias, const Tensor& out) const;
  Tensor gathered(Stream& stream, std::span<const int32_t> rows, const Tensor& in) const;

  std::vector<const LoraLayers*> adapters_;
  std::vector<Group> groups_;
  Arena& scratch_;
};

}  // namespace quire
