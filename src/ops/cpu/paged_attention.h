#pragma once
// Attention over the CPU's KV cache, cut into tasks.
//
// A row's result is merged, in order, from the results of the parts of its context, which begin at
// multiples of kAttentionSplit, so its bits do not depend on who computes which part. A task is a
// query tile and KV head of a sequence with all parts; or, where one sequence is long compared with
// the batch's work, one part of it.
#include <cstdint>

#include "core/forward_batch.h"
#include "core/kv_cache_view.h"
#include "core/stream.h"
#include "core/tensor.h"

namespace quire::ops {

// ops/attention.h's paged_attention, whose arguments have been checked, on a CPU's stream.
void paged_attention_on_cpu(Stream& stream, const Tensor& q, int num_heads, float scale,
                            int64_t sliding_window, const ForwardBatch& batch,
                            const KvCacheView& cache, const Tensor& out);

}  // namespace quire::ops
