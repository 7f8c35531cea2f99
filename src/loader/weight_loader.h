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

// Copies what the parameters want of the checkpoint's tensors, in the order of the files, in
// parallel, each tensor once. Everything is checked before the first byte is copied: a tensor that
// is missing, that the model doesn't know (and doesn't ignore), whose shape or dtype is not what is
// expected, or that holds scales of which one is zero or not finite, throws Error naming the
// tensor, the file, what was found and what was expected. on_progress (may be empty) is called on
// the calling thread with the checkpoint's bytes that are done with.
void load_weights(const Checkpoint& checkpoint, const ParameterMap& parameters, ThreadPool& pool,
                  const ProgressCallback& on_progress);

// Random weights, as each tensor's DummyInit says. A value depends only on the seed, the checkpoint
// name of its tensor and its place in that tensor, so that it is the same for any number of ranks
// and threads.
void fill_dummy_weights(const ParameterMap& parameters, uint64_t seed, ThreadPool& pool,
                        const ProgressCallback& on_progress);

}  // namespace quire
