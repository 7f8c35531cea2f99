#pragma once
// The scheduler's state of a sequence: how far it is computed, and in which blocks.
//
// Thread safety: none needed; the scheduler's thread owns it.
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "request/sequence.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"

namespace quire::scheduler_internal {

struct ClientQueue;

struct ScheduledState {
  ScheduledState(Sequence new_sequence, uint64_t arrival_order, ClientQueue& its_client,
                 int64_t max_model_len)
      : sequence(std::move(new_sequence)),
        max_num_tokens(sequence.max_num_tokens(max_model_len)),
        arrival(arrival_order),
        client(its_client) {}

  Sequence sequence;
  int64_t max_num_tokens;  // of the sequence
  uint64_t arrival;
  ClientQueue& client;
  bool running = false;  // and known to the runner; else waiting, at first or after a preemption

  // The tokens that it had when it began to run: until these are computed, its chunks are prefills.
  int64_t num_prefill_tokens = 0;
  // Scheduled steps count as done, with the most tokens that they may bring.
  int64_t num_computed_tokens = 0;
  int64_t num_placeholders = 0;  // tokens that steps in flight will sample, at most
  std::vector<int32_t> drafts;   // for its next chunk
  bool verifies = false;         // its newest chunk is a verify chunk, and in flight
  // The step that has its newest chunk, and where, while that step is being made.
  std::optional<uint64_t> chunk_step;
  size_t chunk_index = 0;

  // Prompt tokens found in the prefix cache when it first ran; none before.
  std::optional<int64_t> num_cached_tokens;
  int64_t num_prompt_logprobs = 0;  // delivered; a preempted sequence computes them again
  int64_t num_preemptions = 0;
  bool waits_for_lora = false;  // its adapter was in the way of its beginning
  // Sequences with adapters that came after it and began since then.
  int64_t num_lora_overtakes = 0;

  std::vector<BlockRef> blocks;
  std::vector<BlockHash> block_hashes;  // of full blocks of known tokens, as far as needed
  int64_t num_filed_blocks = 0;         // of `blocks`, from the first, that are in the prefix cache

  bool is_prefilling() const { return num_computed_tokens < num_prefill_tokens; }
  // Placeholders included.
  int64_t num_tokens() const { return sequence.num_tokens() + num_placeholders; }
};

}  // namespace quire::scheduler_internal
