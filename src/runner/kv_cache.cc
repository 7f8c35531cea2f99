#include "runner/kv_cache.h"

namespace quire {
namespace {

KvCacheView make_view(const KvCacheShape& shape, DType dtype, int block_size, int64_t num_blocks) {
  KvCacheView view;
  view.dtype = dtype;
  view.num_blocks = num_blocks;
  view.block_size = block_size;
  view.num_kv_heads = shape.num_kv_heads;
  view.head_dim = shape.head_dim;
  return view;
}

}  // namespace

int64_t KvCache::bytes_per_block(const KvCacheShape& shape, DType dtype, int block_size) {
  const KvCacheView view = make_view(shape, dtype, block_size, 1);
  return shape.num_layers * 2 * static_cast<int64_t>(align_up(view.block_bytes()));
}

KvCache::KvCache(const KvCacheShape& shape, DType dtype, int block_size, int64_t num_blocks,
                 const Device& device) {
  const KvCacheView prototype = make_view(shape, dtype, block_size, num_blocks);
  check(prototype.block_bytes() % kAlignment == 0,
        "a KV block is not a whole number of cache lines");
  const size_t part = prototype.block_bytes() * static_cast<size_t>(num_blocks);
  buffer_ = Buffer(part * 2 * static_cast<size_t>(shape.num_layers), device);
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    KvCacheView view = prototype;
    view.keys = buffer_.data() + static_cast<size_t>(2 * layer) * part;
    view.values = buffer_.data() + static_cast<size_t>(2 * layer + 1) * part;
    layers_.push_back(view);
  }
}

}  // namespace quire
