#pragma once
// A runner for the scheduler's tests. It keeps tokens and block tables like a real one, and a KV
// cache in which each slot holds a hash of the tokens up to and including its own. So it notices at
// once when a sequence would read what is not its prefix. The token it samples is a hash of the
// prefix, the seed and the index. Of the drafts that it makes itself, three in four are right.
// Thread safety: none needed; for one test's thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "request/scheduled_batch.h"

namespace quire::scheduler_internal {

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The token that follows `token_ids`.
inline int32_t mock_next_token(const std::vector<int32_t>& token_ids, uint64_t seed, uint32_t index,
                               int32_t vocab_size) {
  uint64_t hash = mix(seed, index);
  for (const int32_t id : token_ids) hash = mix(hash, static_cast<uint64_t>(id));
  return static_cast<int32_t>(hash % static_cast<uint64_t>(vocab_size));
}

class MockRunner {
 public:
  MockRunner(int64_t num_blocks, int block_size, int32_t vocab_size, int64_t max_model_len)
      : block_size_(block_size),
        vocab_size_(vocab_size),
        max_model_len_(max_model_len),
        slots_(static_cast<size_t>(num_blocks * block_size)) {}

  // Chunks begin where they say, as stages that learn no tokens need it.
  void expect_exact_starts() { exact_starts_ = true; }

  // With another salt, equal tokens count as other text. The runner itself is not told salts, so a
  // test sets them here.
  void set_salt(SequenceId id, const std::string& salt) {
    salts_[id] = std::hash<std::string>()(salt);
  }

  StepOutput run(const ScheduledBatch& batch) {
    for (const SequenceId id : batch.removed) EXPECT_EQ(known_.erase(id), 1u) << id;
    for (const NewSequence& added : batch.added) add(added);
    std::set<SequenceId> scheduled;
    for (const ScheduledSequence& chunk : batch.sequences) {
      EXPECT_TRUE(scheduled.insert(chunk.id).second) << "scheduled twice: " << chunk.id;
      write(chunk);
    }
    for (const auto& [id, sequence] : known_) verify(id, sequence);
    StepOutput output;
    output.step = batch.step;
    for (const ScheduledSequence& chunk : batch.sequences)
      output.sequences.push_back(sample(chunk));
    for (const auto& [id, sequence] : known_) verify(id, sequence);
    return output;
  }

  // Of a step that is not run: its sequences are known, and no more.
  StepOutput skip(const ScheduledBatch& batch) {
    for (const SequenceId id : batch.removed) EXPECT_EQ(known_.erase(id), 1u) << id;
    for (const NewSequence& added : batch.added) add(added);
    StepOutput output;
    output.step = batch.step;
    output.is_void = true;
    for (const ScheduledSequence& chunk : batch.sequences) {
      SequenceOutput& sequence = output.sequences.emplace_back();
      sequence.id = chunk.id;
      if (chunk.samples) sequence.token_ids = {0};
    }
    return output;
  }

  bool knows_any() const { return !known_.empty(); }
  // Of verify chunks.
  int64_t num_kept_drafts() const { return num_kept_drafts_; }
  int64_t num_rejected_drafts() const { return num_rejected_drafts_; }

 private:
  struct Known {
    NewSequence start;
    std::vector<int32_t> token_ids;
    std::vector<uint64_t> prefix_hashes;  // of each token and all before it
    std::vector<int32_t> block_ids;
    int64_t num_added = 0;  // tokens that it was added with
    int64_t num_computed = 0;
    bool had_verify = false;
  };

  void add(const NewSequence& added) {
    Known sequence;
    sequence.start = added;
    for (const int32_t id : added.request->prompt_token_ids) append(added.id, sequence, id);
    for (const int32_t id : added.output_token_ids) append(added.id, sequence, id);
    sequence.num_added = static_cast<int64_t>(sequence.token_ids.size());
    EXPECT_TRUE(known_.emplace(added.id, std::move(sequence)).second) << added.id;
  }

  void append(SequenceId id, Known& sequence, int32_t token_id) {
    const uint64_t before =
        sequence.prefix_hashes.empty() ? salts_[id] : sequence.prefix_hashes.back();
    sequence.prefix_hashes.push_back(mix(before, static_cast<uint64_t>(token_id)));
    sequence.token_ids.push_back(token_id);
  }

  void remove_last(Known& sequence) {
    sequence.prefix_hashes.pop_back();
    sequence.token_ids.pop_back();
  }

  int32_t next_token(const Known& sequence) const {
    return mock_next_token(sequence.token_ids, sequence.start.request->seed, sequence.start.index,
                           vocab_size_);
  }

  uint64_t& slot(const Known& sequence, int64_t position) {
    const auto block =
        static_cast<size_t>(sequence.block_ids.at(static_cast<size_t>(position / block_size_)));
    return slots_.at(block * static_cast<size_t>(block_size_) +
                     static_cast<size_t>(position % block_size_));
  }

  void write(const ScheduledSequence& chunk) {
    ASSERT_TRUE(known_.contains(chunk.id)) << chunk.id;
    Known& sequence = known_.at(chunk.id);
    const int64_t begin = check_chunk(chunk, sequence);
    append_drafts(chunk, sequence);
    const int64_t end = begin + chunk.num_tokens;
    ASSERT_GE(chunk.num_tokens, 1);
    ASSERT_LE(end, static_cast<int64_t>(sequence.token_ids.size()));
    for (const int32_t id : chunk.new_block_ids) {
      EXPECT_EQ(std::ranges::count(sequence.block_ids, id), 0) << "block twice in a table: " << id;
      sequence.block_ids.push_back(id);
    }
    ASSERT_LE(end, static_cast<int64_t>(sequence.block_ids.size()) * block_size_);
    for (int64_t i = begin; i < end; ++i) {
      slot(sequence, i) = sequence.prefix_hashes[static_cast<size_t>(i)];
    }
    sequence.num_computed = end;
  }

  // Returns where the chunk starts.
  int64_t check_chunk(const ScheduledSequence& chunk, const Known& sequence) const {
    const auto num_tokens = static_cast<int64_t>(sequence.token_ids.size());
    const auto num_drafts = static_cast<int64_t>(chunk.draft_token_ids.size());
    EXPECT_LE(num_drafts, static_cast<int64_t>(kMaxDraftTokens));
    EXPECT_EQ(chunk.kind == ChunkKind::kVerify, num_drafts > 0);
    EXPECT_EQ(chunk.kind == ChunkKind::kPrefill, chunk.num_computed_tokens < sequence.num_added);
    if (chunk.kind == ChunkKind::kPrefill) {
      // Only a first chunk may start behind what the runner computed: in the prefix cache.
      if (!sequence.block_ids.empty()) {
        EXPECT_EQ(chunk.num_computed_tokens, sequence.num_computed);
      }
      EXPECT_EQ(chunk.samples, chunk.num_computed_tokens + chunk.num_tokens == num_tokens);
      return chunk.num_computed_tokens;
    }
    EXPECT_EQ(chunk.num_tokens, 1 + num_drafts);
    EXPECT_TRUE(chunk.samples);
    EXPECT_EQ(sequence.num_computed, num_tokens - 1);
    EXPECT_GE(chunk.num_computed_tokens, num_tokens - 1);
    if (!sequence.had_verify || exact_starts_) {
      EXPECT_EQ(chunk.num_computed_tokens, num_tokens - 1);
    }
    return num_tokens - 1;
  }

  void append_drafts(const ScheduledSequence& chunk, Known& sequence) {
    sequence.had_verify |= chunk.kind == ChunkKind::kVerify;
    for (const int32_t given : chunk.draft_token_ids) {
      int32_t draft = given;
      if (given == kDraftOfRunner) {
        draft = next_token(sequence);
        if (random_() % 4 == 0) draft = (draft + 1) % vocab_size_;
      }
      append(chunk.id, sequence, draft);
    }
  }

  // What is computed of a sequence, by itself or by others, is its own prefix.
  void verify(SequenceId id, const Known& sequence) {
    for (int64_t i = 0; i < sequence.num_computed; ++i) {
      ASSERT_EQ(slot(sequence, i), sequence.prefix_hashes[static_cast<size_t>(i)])
          << "sequence " << id << " position " << i;
    }
  }

  SequenceOutput sample(const ScheduledSequence& chunk) {
    SequenceOutput output;
    output.id = chunk.id;
    if (!known_.contains(chunk.id)) return output;
    Known& sequence = known_.at(chunk.id);
    const Request& request = *sequence.start.request;
    const SamplingParams& params = request.params;
    if (params.prompt_logprobs) {
      const int64_t end =
          std::min(chunk.num_computed_tokens + chunk.num_tokens, request.num_prompt_tokens() - 1);
      for (int64_t i = chunk.num_computed_tokens; i < end; ++i) {
        output.prompt_logprobs.push_back(
            {{sequence.token_ids[static_cast<size_t>(i + 1)]}, {}, {}});
      }
    }
    if (chunk.samples) sample_tokens(chunk, sequence, output);
    return output;
  }

  void sample_tokens(const ScheduledSequence& chunk, Known& sequence, SequenceOutput& output) {
    const size_t num_drafts = chunk.draft_token_ids.size();
    const std::vector<int32_t> drafts(sequence.token_ids.end() - std::ssize(chunk.draft_token_ids),
                                      sequence.token_ids.end());
    for (size_t i = 0; i < num_drafts; ++i) remove_last(sequence);
    const Request& request = *sequence.start.request;
    for (size_t i = 0; i <= num_drafts; ++i) {
      const int32_t token_id = next_token(sequence);
      output.token_ids.push_back(token_id);
      if (request.params.logprobs) output.logprobs.push_back({{token_id}, {}, {}});
      append(chunk.id, sequence, token_id);
      if (i == num_drafts || drafts[i] != token_id) {
        num_rejected_drafts_ += static_cast<int64_t>(num_drafts - i);
        break;
      }
      ++num_kept_drafts_;
    }
    const auto num_tokens = static_cast<int64_t>(sequence.token_ids.size());
    sequence.num_computed = num_tokens - 1;
    EXPECT_LE(num_tokens, max_model_len_);
    if (request.params.max_tokens) {
      EXPECT_LE(num_tokens - request.num_prompt_tokens(), *request.params.max_tokens);
    }
  }

  int block_size_;
  int32_t vocab_size_;
  int64_t max_model_len_;
  std::vector<uint64_t> slots_;
  std::map<SequenceId, uint64_t> salts_;
  std::map<SequenceId, Known> known_;
  std::mt19937_64 random_;
  bool exact_starts_ = false;
  int64_t num_kept_drafts_ = 0;
  int64_t num_rejected_drafts_ = 0;
};

}  // namespace quire::scheduler_internal
