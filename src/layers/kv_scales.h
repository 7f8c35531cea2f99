#pragma once
// The scales of a layer's float8 KV cache, which a checkpoint may have: k_scale and v_scale.
//
// Each is one number, or one for each KV head of the model; a rank has those of its heads. Where a
// checkpoint has several names of a scale, the first in this order counts:
//   self_attn.k_scale            compressed-tensors, Hugging Face's fp8
//   self_attn.attn.k_scale       vLLM's own name
//   self_attn.k_proj.k_scale     ModelOpt; of a fused projection self_attn.qkv_proj.k_scale
//   self_attn.k_proj.output_scale   older compressed-tensors
//   self_attn.kv_scale           one for keys and values
// and likewise v_scale, with v_proj.
//
// Thread safety: as Parameter says.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/buffer.h"
#include "core/kv_cache_view.h"
#include "layers/placement.h"
#include "layers/sharding.h"
#include "loader/parameter.h"

namespace quire {

class KvScales final : public Parameter {
 public:
  // num_kv_heads: of the whole model.
  KvScales(const Placement& place, int64_t num_kv_heads);

  const std::vector<ParameterTensor>& tensors() const override { return tensors_; }
  size_t bytes() const override { return buffer_.size(); }
  void store(const ParameterSlice& slice) override;
  void finish(ThreadPool& pool) override;

  // The cache, with the scales that were loaded; a scale that the checkpoint lacks is 1.
  KvCacheView applied_to(KvCacheView cache) const;

 private:
  int64_t values_at() const;
  // Sets the part of `buffer_` at `out` to this rank's scales from one of the tensors; false where
  // none of them was loaded.
  bool upload(const std::vector<size_t>& names, float* out);

  Device device_;
  IndexRange heads_;  // of this rank
  Buffer buffer_;     // float32[heads] of keys, and from values_at() on of values
  std::vector<ParameterTensor> tensors_;
  // Places in tensors_ of the names of a scale, in order.
  std::vector<size_t> key_names_;
  std::vector<size_t> value_names_;
  // What came for each of tensors_: nothing, a number, or one for each of the model's heads.
  std::vector<std::vector<float>> loaded_;
  bool has_key_scales_ = false;
  bool has_value_scales_ = false;
};

}  // namespace quire
