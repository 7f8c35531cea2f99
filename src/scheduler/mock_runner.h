#pragma once
// A runner for the scheduler's tests: it keeps what a real one would (tokens and block tables of
// its own), and a KV cache in which each slot holds a hash of the tokens up to and including its
// own. So it sees at once when a sequence would read what is not its prefix. The token it samples
// is a hash of the prefix, the seed and the index. Thread safety: none needed; for one test's
// thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
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

  // Text of another salt is another text, though the tokens be equal. The runner itself is not told
  // salts, so a test says them here.
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
    return output;
  }

  bool knows_any() const { return !known_.empty(); }

 private:
  struct Known {
    NewSequence start;
    std::vector<int32_t> token_ids;
    std::vector<uint64_t> prefix_hashes;  // of each token and all before it
    std::vector<int32_t> block_ids;
    int64_t num_computed = 0;
  };

  void add(const NewSequence& added) {
    Known sequence;
    sequence.start = added;
    for (const int32_t id : added.request->prompt_token_ids) append(added.id, sequence, id);
    for (const int32_t id : added.output_token_ids) append(added.id, sequence, id);
    EXPECT_TRUE(known_.emplace(added.id, std::move(sequence)).second) << added.id;
  }

  void append(SequenceId id, Known& sequence, int32_t token_id) {
    const uint64_t before =
        sequence.prefix_hashes.empty() ? salts_[id] : sequence.prefix_hashes.back();
    sequence.prefix_hashes.push_back(mix(before, static_cast<uint64_t>(token_id)));
    sequence.token_ids.push_back(token_id);
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
    const auto num_tokens = static_cast<int64_t>(sequence.token_ids.size());
    const int64_t end = chunk.num_computed_tokens + chunk.num_tokens;
    // Only a first chunk may start behind what the runner computed: in the prefix cache.
    if (!sequence.block_ids.empty()) {
      EXPECT_EQ(chunk.num_computed_tokens, sequence.num_computed);
    }
    ASSERT_GE(chunk.num_tokens, 1);
    ASSERT_LE(end, num_tokens);
    EXPECT_EQ(chunk.samples, end == num_tokens);
    for (const int32_t id : chunk.new_block_ids) {
      EXPECT_EQ(std::ranges::count(sequence.block_ids, id), 0) << "block twice in a table: " << id;
      sequence.block_ids.push_back(id);
    }
    ASSERT_LE(end, static_cast<int64_t>(sequence.block_ids.size()) * block_size_);
    for (int64_t i = chunk.num_computed_tokens; i < end; ++i) {
      slot(sequence, i) = sequence.prefix_hashes[static_cast<size_t>(i)];
    }
    sequence.num_computed = end;
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
    if (!chunk.samples) return output;
    output.token_id =
        mock_next_token(sequence.token_ids, request.seed, sequence.start.index, vocab_size_);
    if (params.logprobs) output.logprobs.token_ids = {output.token_id};
    append(chunk.id, sequence, output.token_id);
    const auto num_tokens = static_cast<int64_t>(sequence.token_ids.size());
    EXPECT_LE(num_tokens, max_model_len_);
    if (params.max_tokens) {
      EXPECT_LE(num_tokens - request.num_prompt_tokens(), *params.max_tokens);
    }
    return output;
  }

  int block_size_;
  int32_t vocab_size_;
  int64_t max_model_len_;
  std::vector<uint64_t> slots_;
  std::map<SequenceId, uint64_t> salts_;
  std::map<SequenceId, Known> known_;
};

}  // namespace quire::scheduler_internal
