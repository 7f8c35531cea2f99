#pragma once
// Runs a model without the runner: one sequence, any number of ranks and stages, the prompt in any
// chunks.
#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "base/ceil_div.h"
#include "layers/lora_step.h"
#include "models/counted_model.h"
#include "models/families.h"

namespace quire {

using FillParameters = std::function<void(const ParameterMap& parameters, ThreadPool& pool)>;

struct TestRunOptions {
  int size = 1;                          // ranks
  std::vector<int64_t> stage_ends = {};  // last_layer of each stage; empty: one stage
  std::vector<int64_t> chunks = {};      // tokens in each step; empty: all at once
  int threads = 1;                       // of each rank
  const LoraWeights* lora = nullptr;     // of all tokens
  DType kv_cache_dtype = DType::kFloat32;
};

struct TestRunResult {
  std::vector<std::vector<float>> logits;  // after each token, by rank 0
  size_t arena_peak = 0;
  size_t arena_planned = 0;
};

// The stages of one rank, each with its cache, and an arena for all of them.
class TestRank {
 public:
  static constexpr int kBlockSize = 16;

  TestRank(ModelOptions options, const TestRunOptions& run, const FillParameters& fill,
           Communicator& comm, int64_t num_tokens)
      : vocab_size_(options.config.vocab_size),
        comm_(comm),
        pool_(run.threads),
        stream_(pool_),
        num_blocks_(ceil_div(num_tokens, kBlockSize)),
        kv_cache_dtype_(run.kv_cache_dtype) {
    options.rank = comm.rank();
    options.size = comm.size();
    std::vector<int64_t> ends = run.stage_ends;
    if (ends.empty()) ends.push_back(options.config.num_hidden_layers);
    const int64_t longest =
        run.chunks.empty() ? num_tokens : *std::max_element(run.chunks.begin(), run.chunks.end());
    for (const int64_t end : ends) {
      options.last_layer = end;
      planned_ = std::max(planned_, CountedModel(options).activation_bytes(longest, longest));
      stages_.push_back(create_model(options));
      fill(stages_.back()->parameters(), pool_);
      if (run.lora != nullptr) add_lora(*run.lora, options.dtype);
      add_caches(stages_.back()->kv_cache_shape());
      stages_.back()->bind_cache(stream_, comm_, caches_.back());
      options.first_layer = end;
    }
    arena_ = std::make_unique<Arena>(Buffer(planned_));
  }

  // Logits after each token of `tokens`, which follow `num_cached` others.
  std::vector<std::vector<float>> step(std::span<const int32_t> tokens, int64_t num_cached) {
    const auto n = static_cast<int64_t>(tokens.size());
    std::vector<int32_t> ids(tokens.begin(), tokens.end());
    std::vector<int32_t> positions(tokens.size()), rows(tokens.size()), blocks;
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(num_cached));
    std::iota(rows.begin(), rows.end(), 0);
    // Backwards, so that a block's number is not its place in the sequence.
    for (int64_t b = 0; b < num_blocks_; ++b)
      blocks.push_back(static_cast<int32_t>(num_blocks_ - 1 - b));
    std::vector<int64_t> slots;
    slots.reserve(tokens.size());
    for (const int32_t p : positions) {
      slots.push_back(int64_t{blocks[static_cast<size_t>(p / kBlockSize)]} * kBlockSize +
                      p % kBlockSize);
    }
    std::vector<int32_t> query_start{0, static_cast<int32_t>(n)};
    auto context_len = static_cast<int32_t>(num_cached + n);
    const ForwardBatch batch{.num_tokens = n,
                             .num_seqs = 1,
                             .max_query_len = n,
                             .max_context_len = context_len,
                             .token_ids = Tensor(ids.data(), DType::kInt32, {n}),
                             .positions = Tensor(positions.data(), DType::kInt32, {n}),
                             .slot_mapping = Tensor(slots.data(), DType::kInt64, {n}),
                             .query_start = Tensor(query_start.data(), DType::kInt32, {2}),
                             .context_lens = Tensor(&context_len, DType::kInt32, {1}),
                             .block_tables = Tensor(blocks.data(), DType::kInt32, {1, num_blocks_}),
                             .logits_rows = Tensor(rows.data(), DType::kInt32, {n}),
                             .decode_items = Tensor(),
                             .num_decode_items = Tensor()};
    Arena::Scope scope(*arena_);
    std::optional<IntermediateTensors> state;
    for (size_t s = 0; s < stages_.size(); ++s) {
      ForwardContext context{stream_, DType::kFloat32, *arena_, comm_, batch};
      const std::optional<LoraStep> lora = lora_step(s, tokens.size());
      if (lora) context.lora = &*lora;
      state = stages_[s]->forward(context, state);
    }
    ForwardContext context{stream_, DType::kFloat32, *arena_, comm_, batch};
    const std::optional<LoraStep> lora = lora_step(stages_.size() - 1, tokens.size());
    if (lora) context.lora = &*lora;
    const Tensor logits = stages_.back()->compute_logits(context, state->hidden);
    std::vector<std::vector<float>> result;
    for (int64_t row = 0; row < n; ++row) {
      const float* values = logits.row<float>(row);
      result.emplace_back(values, values + vocab_size_);
    }
    return result;
  }

  size_t arena_peak() const { return arena_->peak(); }
  size_t arena_planned() const { return planned_; }

 private:
  void add_lora(const LoraWeights& weights, DType dtype) {
    const LoraSites sites = stages_.back()->lora_sites();
    loras_.push_back(std::make_unique<LoraLayers>(weights, sites, dtype, pool_));
    const size_t bytes = LoraStep::scratch_bytes(sites, weights.rank);
    lora_scratch_.push_back(std::make_unique<Arena>(Buffer(bytes)));
  }

  std::optional<LoraStep> lora_step(size_t stage, size_t num_tokens) const {
    if (loras_.empty()) return std::nullopt;
    return LoraStep(std::vector<const LoraLayers*>(num_tokens, loras_[stage].get()),
                    *lora_scratch_[stage]);
  }

  void add_caches(const KvCacheShape& shape) {
    std::vector<KvCacheView> views;
    for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
      KvCacheView view{.dtype = kv_cache_dtype_,
                       .num_blocks = num_blocks_,
                       .block_size = kBlockSize,
                       .num_kv_heads = shape.num_kv_heads,
                       .head_dim = shape.head_dim};
      const size_t bytes = static_cast<size_t>(num_blocks_) * view.block_bytes();
      view.keys = memory_.emplace_back(bytes).data();
      view.values = memory_.emplace_back(bytes).data();
      views.push_back(view);
    }
    caches_.push_back(std::move(views));
  }

  int64_t vocab_size_;
  Communicator& comm_;
  ThreadPool pool_;
  Stream stream_;
  int64_t num_blocks_;
  DType kv_cache_dtype_;
  size_t planned_ = 0;
  std::vector<std::unique_ptr<Model>> stages_;
  std::vector<Buffer> memory_;
  std::vector<std::vector<KvCacheView>> caches_;
  std::unique_ptr<Arena> arena_;
  std::vector<std::unique_ptr<LoraLayers>> loras_;  // a stage's each
  std::vector<std::unique_ptr<Arena>> lora_scratch_;
};

inline TestRunResult run_rank(const ModelOptions& options, const TestRunOptions& run,
                              const FillParameters& fill, std::span<const int32_t> tokens,
                              Communicator& comm) {
  TestRank rank(options, run, fill, comm, static_cast<int64_t>(tokens.size()));
  TestRunResult result;
  std::vector<int64_t> chunks = run.chunks;
  if (chunks.empty()) chunks.push_back(static_cast<int64_t>(tokens.size()));
  int64_t done = 0;
  for (const int64_t chunk : chunks) {
    const auto part = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(chunk));
    for (auto& row : rank.step(part, done)) result.logits.push_back(std::move(row));
    done += chunk;
  }
  result.arena_peak = rank.arena_peak();
  result.arena_planned = rank.arena_planned();
  return result;
}

// Element r is what rank r computed. Throws what a rank threw.
inline std::vector<TestRunResult> run_prompt(const ModelOptions& options, const TestRunOptions& run,
                                             const FillParameters& fill,
                                             std::span<const int32_t> tokens) {
  auto comms = make_local_communicators(run.size);
  std::vector<TestRunResult> results(comms.size());
  std::vector<std::exception_ptr> errors(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        results[r] = run_rank(options, run, fill, tokens, *comms[r]);
      } catch (...) {
        errors[r] = std::current_exception();
        comms[r]->abort();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return results;
}

}  // namespace quire
