#pragma once
// What one forward pass of one rank works with, handed down from the runner through every layer.
//
// Thread safety: one thread, the rank's worker.
#include <span>

#include "core/buffer.h"
#include "core/forward_batch.h"
#include "core/kv_cache_view.h"
#include "core/stream.h"
#include "dist/communicator.h"

namespace quire {

struct ForwardContext {
  Stream& stream;
  Arena& arena;
  Communicator& comm;
  const ForwardBatch& batch;
  // One for each layer of this stage, in order: element i belongs to layer first_layer + i.
  std::span<const KvCacheView> kv_caches;
};

}  // namespace quire
