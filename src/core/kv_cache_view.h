#pragma once
// One layer's part of the paged KV cache on one rank.
//
// Memory is [num_blocks] blocks of `block_size` tokens of `num_kv_heads` heads of `head_dim`
// elements, once for keys and once for values. How the elements of a block are ordered is the
// business of the ops of the device (ops/attention.h): every block takes block_bytes() for keys and
// as much for values. Thread safety: a plain value.
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace quire {

struct KvCacheView {
  void* keys = nullptr;
  void* values = nullptr;
  DType dtype = DType::kFloat32;
  int64_t num_blocks = 0;
  int block_size = 16;   // tokens; a multiple of 16 up to 256
  int num_kv_heads = 0;  // of this rank
  int head_dim = 0;

  size_t block_bytes() const {
    return static_cast<size_t>(block_size) * static_cast<size_t>(num_kv_heads) *
           static_cast<size_t>(head_dim) * size_of(dtype);
  }
};

}  // namespace quire
