#pragma once
// Checks each step of a scheduler's test against scheduler.h's promises for every step: its limits,
// the order of a client's sequences, and that it uses all the room that it has. It knows only what
// the engine knows: what was added, scheduled and ended. Thread safety: none needed; for one test's
// thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "base/ceil_div.h"
#include "request/scheduled_batch.h"
#include "scheduler/scheduler.h"

namespace quire::scheduler_internal {

class ScheduleWatcher {
 public:
  ScheduleWatcher(const SchedulerConfig& config, int64_t max_prefill_tokens)
      : config_(config), max_prefill_tokens_(max_prefill_tokens) {}

  void added(SequenceId id, std::shared_ptr<const Request> request) {
    Watched& watched = sequences_[id];
    watched.num_tokens = request->num_prompt_tokens();
    watched.request = std::move(request);
    watched.arrival = next_arrival_++;
  }
  void ended(SequenceId id) { sequences_.erase(id); }
  // A chunk of it brought tokens, or nothing but its end.
  void processed(SequenceId id, int64_t num_tokens) {
    const auto it = sequences_.find(id);
    if (it == sequences_.end()) return;
    it->second.num_tokens += num_tokens;
    --it->second.num_awaited;
  }

  // `stats` as they are once the step was made.
  void scheduled(const ScheduledBatch& batch, const SchedulerStats& stats) {
    verify_limits(batch);
    verify_groups(batch);
    const int64_t chunk = stage_chunk(config_, num_pending());
    EXPECT_LE(num_prefill_tokens(batch), chunk);
    take(batch);
    verify_loras();
    verify_order(batch);
    verify_conserving(batch, stats, std::min(max_prefill_tokens_, chunk));
    num_preemptions_ = stats.num_preemptions;
  }

  // The running sequences of a client.
  int64_t num_running(uint64_t client) const {
    return std::ranges::count_if(sequences_, [client](const auto& entry) {
      return entry.second.running && entry.second.request->client == client;
    });
  }

 private:
  struct Watched {
    std::shared_ptr<const Request> request;
    uint64_t arrival = 0;
    int64_t num_tokens = 0;   // known
    int64_t num_awaited = 0;  // chunks in flight that sample
    bool running = false;
    int64_t num_prefill = 0;  // tokens that it had when it began to run
    int64_t num_computed = 0;
    int64_t sampled_in = 0;  // the number of the last batch in which it sampled

    bool is_prefilling() const { return num_computed < num_prefill; }
  };

  static bool goes_first(const Watched& a, const Watched& b) {
    return std::tuple(a.request->priority, a.arrival) < std::tuple(b.request->priority, b.arrival);
  }

  void verify_limits(const ScheduledBatch& batch) const {
    EXPECT_LE(batch.num_tokens, config_.max_num_batched_tokens);
    EXPECT_LE(std::ssize(batch.sequences), config_.max_num_seqs);
    int64_t num_tokens = 0;
    for (const ScheduledSequence& chunk : batch.sequences) {
      num_tokens += chunk.num_tokens;
      if (std::ranges::count(batch.removed, chunk.id) == 0) continue;
      // A step before it failed, and it begins anew.
      EXPECT_GT(batch.num_failed_steps, 0u);
      EXPECT_EQ(std::ranges::count(batch.added, chunk.id, &NewSequence::id), 1);
    }
    EXPECT_EQ(num_tokens, batch.num_tokens);
    EXPECT_LE(num_prefill_tokens(batch), max_prefill_tokens_);
    const auto place = [](const ScheduledSequence& chunk) {
      return chunk.kind == ChunkKind::kDecode ? 0 : chunk.kind == ChunkKind::kVerify ? 1 : 2;
    };
    EXPECT_TRUE(std::ranges::is_sorted(batch.sequences, {}, place)) << "decodes come first";
  }

  static int64_t num_prefill_tokens(const ScheduledBatch& batch) {
    int64_t num_tokens = 0;
    for (const ScheduledSequence& chunk : batch.sequences) {
      if (chunk.kind == ChunkKind::kPrefill) num_tokens += chunk.num_tokens;
    }
    return num_tokens;
  }

  // Of prompts, before a step.
  int64_t num_pending() const {
    int64_t num_tokens = 0;
    for (const auto& [id, sequence] : sequences_) {
      num_tokens += !sequence.running          ? sequence.num_tokens
                    : sequence.is_prefilling() ? sequence.num_prefill - sequence.num_computed
                                               : 0;
    }
    return num_tokens;
  }

  // The sequences that decode are divided between as many steps as there are stages.
  void verify_groups(const ScheduledBatch& batch) const {
    if (config_.num_stages == 1) return;
    int64_t num_decoding = 0;
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.running && !sequence.is_prefilling()) ++num_decoding;
    }
    int64_t num_decodes = 0;
    for (const ScheduledSequence& chunk : batch.sequences) {
      if (chunk.kind != ChunkKind::kPrefill) ++num_decodes;
      const Watched& sequence = sequences_.at(chunk.id);
      if (sequence.num_awaited == 0) continue;
      EXPECT_GE(num_batches_ - sequence.sampled_in, config_.num_stages)
          << chunk.id << " is in another stage";
    }
    EXPECT_LE(num_decodes, ceil_div(num_decoding, config_.num_stages));
  }

  void take(const ScheduledBatch& batch) {
    for (const SequenceId id : batch.removed) {
      const auto it = sequences_.find(id);
      if (it != sequences_.end()) it->second.running = false;  // it was preempted
    }
    for (const NewSequence& added : batch.added) {
      Watched& watched = sequences_.at(added.id);
      EXPECT_EQ(watched.num_awaited, 0) << "tokens of " << added.id << " are not known yet";
      watched.running = true;
      watched.num_prefill = watched.num_tokens;
    }
    for (const ScheduledSequence& chunk : batch.sequences) {
      Watched& watched = sequences_.at(chunk.id);
      EXPECT_TRUE(watched.running) << chunk.id;
      watched.num_computed = chunk.num_computed_tokens + chunk.num_tokens;
      watched.num_awaited += chunk.samples ? 1 : 0;
      if (chunk.samples) watched.sampled_in = num_batches_;
    }
    if (!batch.empty()) ++num_batches_;
  }

  int64_t blocks_of(const Watched& watched) const {
    return (watched.num_tokens + config_.block_size - 1) / config_.block_size;
  }

  // Whether it may have to wait for its adapter.
  bool has_limited_lora(const Watched& watched) const {
    return config_.max_loras > 0 && watched.request->lora_id != 0;
  }

  void verify_loras() const {
    std::set<uint64_t> running;
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.running && has_limited_lora(sequence)) running.insert(sequence.request->lora_id);
    }
    if (running.empty()) return;
    EXPECT_LE(std::ssize(running), config_.max_loras);
  }

  // None overtakes another of its client, unless that waits for its adapter.
  void verify_order(const ScheduledBatch& batch) const {
    for (const NewSequence& added : batch.added) {
      const Watched& one = sequences_.at(added.id);
      for (const auto& [id, other] : sequences_) {
        if (other.running || other.request->client != one.request->client) continue;
        if (has_limited_lora(other)) continue;
        EXPECT_FALSE(goes_first(other, one)) << added.id << " overtook " << id;
      }
    }
  }

  // A step with room for prompt tokens has all of those that run, and each client's next is
  // admitted while there are places and blocks.
  void verify_conserving(const ScheduledBatch& batch, const SchedulerStats& stats,
                         int64_t max_prefill_tokens) const {
    const int64_t room = std::min(config_.max_num_batched_tokens - batch.num_tokens,
                                  max_prefill_tokens - num_prefill_tokens(batch));
    if (room <= 0) return;
    for (const auto& [id, sequence] : sequences_) {
      if (!sequence.running) continue;
      EXPECT_FALSE(sequence.is_prefilling())
          << "room for " << room << " more tokens, and the prompt of " << id << " is not computed";
    }
    // Who had to be preempted for others' next tokens has none that come after it.
    if (stats.num_running == config_.max_num_seqs || stats.num_preemptions > num_preemptions_) {
      return;
    }
    int64_t most_blocks = 0;  // that the next of a client needs
    std::map<uint64_t, const Watched*> next;
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.running || has_limited_lora(sequence)) continue;
      const Watched*& first = next[sequence.request->client];
      if (first == nullptr || goes_first(sequence, *first)) first = &sequence;
    }
    for (const auto& [client, sequence] : next) {
      if (sequence->num_awaited > 0) continue;
      most_blocks = std::max(most_blocks, blocks_of(*sequence));
    }
    if (most_blocks == 0) return;
    // Those with adapters may be next, too.
    for (const auto& [id, sequence] : sequences_) {
      if (sequence.running || !has_limited_lora(sequence)) continue;
      if (sequence.num_awaited > 0) return;
      most_blocks = std::max(most_blocks, blocks_of(sequence));
    }
    // Each that decodes in another step may be kept a block for its next token.
    const int64_t num_kept = config_.num_stages == 1 ? 0 : stats.num_decoding;
    EXPECT_GT(most_blocks, stats.num_blocks - stats.num_used_blocks - num_kept)
        << "room for " << room << " more tokens, a place and blocks, and sequences wait";
  }

  SchedulerConfig config_;
  int64_t max_prefill_tokens_;
  std::map<SequenceId, Watched> sequences_;  // that have not ended
  uint64_t next_arrival_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t num_batches_ = 0;  // with sequences
};

}  // namespace quire::scheduler_internal
