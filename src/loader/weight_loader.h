#pragma once
// Fills a model's parameters, from a checkpoint or with random numbers.
//
// Several ranks may load from one Checkpoint at once, each its shard, each with its own pool.
// Thread safety: the calling thread owns `parameters` and `pool`.
#include <cstdint>

#include "base/thread_pool.h"
#include "loader/checkpoint.h"
#include "loader/parameter.h"
#include "quire/engine_config.h"

namespace quire {

// Throws Error, like load_weights, where the checkpoint's tensors do not match the parameters.
void check_weights(const Checkpoint& checkpoint, const ParameterMap& parameters);

// Copies the parts of the checkpoint's tensors that the parameters take: each tensor once, in the
// order of the files, in parallel. Everything is checked before the first byte is copied. Throws
// Error, naming the tensor, the file, what was found and what was expected, where a tensor is
// missing, is neither known to the model nor ignored, has another shape or dtype than expected, or
// holds a scale that is zero or not finite. on_progress (may be empty) is called on the calling
// thread with the number of bytes of the checkpoint that are done.
void load_weights(const Checkpoint& checkpoint, const ParameterMap& parameters, ThreadPool& pool,
                  const ProgressCallback& on_progress);

// Random weights, as each tensor's DummyInit says. A value depends only on the seed, the checkpoint
// name of its tensor and its place in that tensor, so that it is the same for any number of ranks
// and threads.
void fill_dummy_weights(const ParameterMap& parameters, uint64_t seed, ThreadPool& pool,
                        const ProgressCallback& on_progress);

}  // namespace quire
