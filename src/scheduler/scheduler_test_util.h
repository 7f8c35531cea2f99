#pragma once
// For tests of the scheduler: a small configuration, sequences, and the outputs of a runner.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "scheduler/scheduler.h"

namespace quire {

inline constexpr int32_t kEos = 1000;

class SchedulerTest : public ::testing::Test {
 protected:
  using Ids = std::vector<SequenceId>;

  static SchedulerConfig config() {
    SchedulerConfig config;
    config.max_num_batched_tokens = 100;
    config.max_num_seqs = 8;
    config.max_model_len = 64;
    config.block_size = 4;
    config.num_blocks = 64;
    config.eos_token_ids = {kEos};
    return config;
  }

  static Request request(int64_t prompt_length, SamplingParams params = {}) {
    Request request;
    request.prompt_token_ids.resize(static_cast<size_t>(prompt_length));
    std::iota(request.prompt_token_ids.begin(), request.prompt_token_ids.end(), 0);
    request.params = std::move(params);
    return request;
  }

  static Sequence sequence_of(SequenceId id, Request request, uint32_t index = 0) {
    return {id, std::make_shared<const Request>(std::move(request)), index};
  }

  static Sequence sequence(SequenceId id, int64_t prompt_length, SamplingParams params = {}) {
    return sequence_of(id, request(prompt_length, std::move(params)));
  }

  // A prompt that shares nothing with any other.
  static Sequence unique_sequence(SequenceId id, int64_t prompt_length,
                                  SamplingParams params = {}) {
    Request unique = request(prompt_length, std::move(params));
    unique.prompt_token_ids[0] = static_cast<int32_t>(2000 + id);
    return sequence_of(id, std::move(unique));
  }

  // What the runner would return if every token were `token_id`.
  static StepOutput output_of(const ScheduledBatch& batch, int32_t token_id = 500) {
    StepOutput output;
    output.step = batch.step;
    for (const ScheduledSequence& chunk : batch.sequences) {
      SequenceOutput& sequence = output.sequences.emplace_back();
      sequence.id = chunk.id;
      if (chunk.samples) sequence.token_ids = {token_id};
    }
    return output;
  }

  static Ids ids_of(const ScheduledBatch& batch) {
    Ids ids;
    for (const ScheduledSequence& chunk : batch.sequences) ids.push_back(chunk.id);
    return ids;
  }
};

}  // namespace quire
