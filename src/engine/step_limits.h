#pragma once
// The most that a step holds, from an engine's settings: the memory plan counts it, and the
// scheduler keeps it.
//
// Thread safety: pure functions.
#include <cstdint>

#include "quire/engine_config.h"

namespace quire {

// The most drafts of text that has no choice in a chunk of a step; 0: none are made.
int64_t max_forced_drafts_of(const EngineConfig& config, bool on_gpu);

// The most drafts of a step on GPUs, where each takes room for a row of logits. Without speculation
// they are text that has no choice.
int64_t max_gpu_drafts_of(const EngineConfig& config);

// The most drafts of a step in stages on the CPU. Without speculation drafts are text that has no
// choice.
int64_t max_stage_drafts_of(const EngineConfig& config);

// The most tokens of a step: with several stages each step has a part of them.
int64_t max_step_tokens_of(const EngineConfig& config, bool on_gpu);

}  // namespace quire
