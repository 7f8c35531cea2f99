#pragma once
// One client floods an engine with prompts, and another comes beside it. What it waits is counted
// in steps, so that nothing depends on time: a sequence that decodes is in every step, and its
// callback counts them.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/async_llm.h"

namespace quire::engine_test {

// An engine of the bundled model. A step takes 64 tokens, half of them of a visitor's prompt if it
// is so long, and the next one is always scheduled ahead.
inline EngineConfig flooded_config(const std::string& device) {
  EngineConfig config;
  config.model = (std::filesystem::path(QUIRE_SOURCE_DIR) / "models" / "lexicon").string();
  config.device = device;
  config.dtype = "float32";
  config.skip_tokenizer_init = true;
  config.max_num_batched_tokens = 64;
  config.num_gpu_blocks_override = 2048;
  return config;
}

class Flood {
 public:
  static constexpr uint64_t kFlooder = 1;

  // The flooder keeps `num_requests` prompts of `num_tokens` in the engine; client `visitor` comes
  // beside it.
  Flood(int num_requests, int num_tokens, uint64_t visitor = 2)
      : num_requests_(num_requests), num_tokens_(num_tokens), visitor_(visitor) {}

  // Short requests come in the middle of steps. Returns the wait of each: the number of steps from
  // that one to the last before its own first, both counted whole.
  std::vector<int> waits(const EngineConfig& config, int num_visits) {
    AsyncLLM llm(config);
    llm_ = &llm;
    for (int i = 0; i < num_requests_; ++i) add_to_flood();
    SamplingParams params{.temperature = 0, .max_tokens = kVisitEvery * (num_visits + 1)};
    params.ignore_eos = true;
    params.logits_processors = {[this](std::span<const int32_t>, std::span<float>) { see_step(); }};
    num_visits_left_ = num_visits;
    RequestStream clock =
        llm.generate(std::vector<int32_t>{1}, std::move(params), {.client = kClock});
    while (clock.next()) {
    }
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    return waits_;
  }

 private:
  static constexpr uint64_t kClock = 3;
  static constexpr int kVisitEvery = 4;  // steps
  static constexpr int kVisitorTokens = 16;

  std::vector<int32_t> prompt(int num_tokens) {
    std::vector<int32_t> ids;
    for (int i = 0; i < num_tokens; ++i) ids.push_back(static_cast<int32_t>(random_() % 8000));
    return ids;
  }

  // Adds a request for one token; `sampled` is called in the step that chooses it.
  void add(uint64_t client, int num_tokens, std::function<void()> sampled) {
    SamplingParams params{.temperature = 0, .max_tokens = 1};
    params.logits_processors = {
        [sampled = std::move(sampled)](std::span<const int32_t>, std::span<float>) { sampled(); }};
    streams_.push_back(llm_->generate(prompt(num_tokens), std::move(params), {.client = client}));
  }
  void add_to_flood() {
    const std::lock_guard lock(mutex_);
    add(kFlooder, num_tokens_, [this] {
      if (!is_over_) add_to_flood();
    });
  }
  // The clock's row of a step comes before those of prompts.
  void see_step() {
    const std::lock_guard lock(mutex_);
    if (++num_steps_ % kVisitEvery != 0 || num_visits_left_-- <= 0) return;
    add(visitor_, kVisitorTokens, [this, begin = num_steps_] {
      const std::lock_guard inner(mutex_);
      waits_.push_back(num_steps_ - begin);
    });
  }

  const int num_requests_;
  const int num_tokens_;
  const uint64_t visitor_;
  AsyncLLM* llm_ = nullptr;
  std::mutex mutex_;
  std::mt19937 random_{7};
  std::vector<RequestStream> streams_;
  int num_visits_left_ = 0;
  int num_steps_ = 0;
  std::vector<int> waits_;
  std::atomic<bool> is_over_ = false;
};

// The bound: a short request of another client begins within two steps, whatever the flood is and
// whether places and blocks are left or not.
inline void expect_floods_to_be_passed(const std::string& device) {
  struct Case {
    const char* name;
    int num_requests;
    int num_tokens;
    int64_t max_num_seqs;
    int64_t num_blocks;
  };
  for (const Case& flood : {Case{"128 x 2,000 tokens", 128, 2000, 512, 2048},
                            Case{"few places and blocks", 128, 2000, 4, 300},
                            Case{"short prompts, again and again", 32, 40, 512, 2048}}) {
    SCOPED_TRACE(flood.name);
    EngineConfig config = flooded_config(device);
    config.max_num_seqs = flood.max_num_seqs;
    config.num_gpu_blocks_override = flood.num_blocks;
    const std::vector<int> waits =
        Flood(flood.num_requests, flood.num_tokens).waits(config, /*num_visits=*/3);
    EXPECT_EQ(waits.size(), 3u);
    for (const int wait : waits) EXPECT_LE(wait, 2);
  }
}

}  // namespace quire::engine_test
