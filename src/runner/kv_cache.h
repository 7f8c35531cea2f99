#pragma once
// The paged KV cache of one rank: one buffer, cut into layers.
//
// Thread safety: none needed; each rank owns its own.
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/kv_cache_view.h"
#include "models/model.h"

namespace quire {

class KvCache {
 public:
  KvCache(const KvCacheShape& shape, DType dtype, int block_size, int64_t num_blocks,
          const Device& device = {});

  // Bytes of the keys and values of one block in all layers.
  static int64_t bytes_per_block(const KvCacheShape& shape, DType dtype, int block_size);

  std::span<const KvCacheView> layers() const { return layers_; }

 private:
  Buffer buffer_;
  std::vector<KvCacheView> layers_;
};

}  // namespace quire
