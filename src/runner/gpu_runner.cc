#include "runner/gpu_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "quire/engine_limits.h"
#include "runner/gpu_batch.h"
#include "runner/sampler.h"

namespace quire {
namespace {

ModelOptions place_on(ModelOptions options, const Communicator& comm, const Device& device) {
  options.rank = comm.rank();
  options.size = comm.size();
  options.device = device;
  return options;
}

DType activation_dtype(const RunnerOptions& options) {
  return options.model.dtype;
}

}  // namespace

struct GpuRunner::Launched {
  struct Sampled {
    SequenceId id = 0;
    size_t index = 0;     // in its sequence's output
    size_t sequence = 0;  // in the batch
    bool on_host = false;
    // Log-probabilities to be found on the GPU; nothing where they are not asked for, or known.
    std::optional<int> num_logprobs;
  };
  StepOutput output;             // without what the GPU finds out
  std::vector<Sampled> sampled;  // in the order of the rows of logits
  bool wants_host = false;       // some of them are sampled by the host
  bool wants_logits = false;     // rank 0 does more with some of them than to sample
  bool adjusts_logits = false;   // of some the GPU adjusts the logits
  bool wants_prompt_logprobs = false;
  LogprobsLayout logprobs_layout;
  // What the GPU writes to lives as long as somebody may read it, also when the runner has failed.
  std::shared_ptr<PinnedBuffer> results;
  int32_t* ids = nullptr;         // pinned: the result
  std::byte* logprobs = nullptr;  // pinned: the result, where some were asked for
  std::unique_ptr<DeviceEvent> began;
  std::unique_ptr<DeviceEvent> done;
};

class GpuRunner::Pending final : public PendingStep {
 public:
  explicit Pending(std::shared_ptr<Launched> step) : step_(std::move(step)) {}

  void finish() override { step_->done->wait(); }

  StepOutput wait() override {
    finish();
    StepOutput output = std::move(step_->output);
    output.gpu_s = step_->done->seconds_since(*step_->began);
    for (size_t row = 0; row < step_->sampled.size(); ++row) {
      const Launched::Sampled& sampled = step_->sampled[row];
      SequenceOutput& sequence = output.sequences[sampled.sequence];
      sequence.token_ids = {step_->ids[row]};
      if (!sampled.num_logprobs) continue;
      sequence.logprobs.push_back(GpuLogprobs::read(step_->logprobs, step_->logprobs_layout,
                                                    static_cast<int64_t>(row), step_->ids[row],
                                                    *sampled.num_logprobs));
    }
    return output;
  }

 private:
  std::shared_ptr<Launched> step_;
};

GpuRunner::GpuRunner(const RunnerOptions& options, const GpuRank& gpu, Communicator& comm,
                     ThreadPool& pool)
    : options_(options),
      comm_(comm),
      pool_(pool),
      library_(*gpu.library),
      sizes_(gpu_sizes(library_.kernels(), options)),
      gpu_(library_.make_stream(gpu.index, options.linear_algorithms)),
      memory_(library_.reserve(gpu.index, gpu.memory_bytes)),
      device_{DeviceType::kCuda, gpu.index, memory_.get()},
      stream_(pool, device_, *gpu_, library_.kernels()),
      host_stream_(pool),
      model_(create_model(place_on(options.model, comm, device_))),
      kv_cache_(model_->kv_cache_shape(), options.kv_cache_dtype, options.block_size,
                options.num_blocks, device_),
      cached_ids_(static_cast<size_t>(options.num_blocks * options.block_size) * sizeof(int32_t),
                  device_),
      arena_(Buffer(CountedModel(place_on(options.model, comm, device_))
                        .arena_bytes(options.max_tokens, sizes_.largest_step.num_logits),
                    device_)),
      inputs_(library_, device_, sizes_.largest_step),
      attention_scratch_(static_cast<size_t>(sizes_.attention_scratch), device_),
      sample_scratch_(static_cast<size_t>(sizes_.sample_scratch), device_),
      sampled_ids_(static_cast<size_t>(sizes_.sampled_ids), device_),
      logprobs_(device_, sizes_.largest_step.num_logits, kMaxLogprobs),
      results_(library_.allocate_pinned(StepInputs::kRing *
                                        static_cast<size_t>(sizes_.sampled_ids + sizes_.logprobs))),
      table_(options.eos_token_ids),
      builder_(options.block_size) {
  model_->bind_cache(stream_, comm_, kv_cache_.layers());
  memory_->finish_uploads();
}

GpuRunner::~GpuRunner() = default;

void GpuRunner::load(const Checkpoint* checkpoint, const ProgressCallback& on_progress) {
  if (options_.load_format == LoadFormat::kDummy) {
    fill_dummy_weights(model_->parameters(), options_.seed, pool_, on_progress);
  } else {
    check(checkpoint != nullptr, "weights are loaded from a checkpoint");
    load_weights(*checkpoint, model_->parameters(), pool_, on_progress);
  }
  memory_->finish_uploads();
}

void GpuRunner::settle(size_t keep) {
  while (in_flight_.size() > keep) {
    const Launched& step = *in_flight_.front();
    step.done->wait();
    for (size_t row = 0; row < step.sampled.size(); ++row) {
      table_.resolve_token(step.sampled[row].id, step.sampled[row].index, step.ids[row]);
    }
    in_flight_.pop_front();
  }
}

ForwardBatch GpuRunner::upload(const ScheduledBatch& batch, const ForwardBatch& host,
                               const StepShape& shape, Launched& step) {
  const int64_t num_decode_seqs =
      fill_step(batch, host, table_, last_rows_, shape, inputs_.next(shape));
  step.began = gpu_->record(EventWait::kSpin);
  on_device_ = inputs_.upload(*gpu_);
  ForwardBatch forward = to_forward_batch(on_device_, shape);
  const bool is_padded = shape.num_seqs > host.num_seqs;
  forward.num_decode_seqs = is_padded ? shape.num_seqs : num_decode_seqs;
  forward.max_query_len = host.max_query_len;
  forward.max_context_len = host.max_context_len;
  forward.attention_scratch = attention_scratch_.data();
  return forward;
}

Tensor GpuRunner::run_model(ForwardBatch& forward) {
  const ops::CudaResolveTokens resolve = {
      .token_ids = on_device_.token_ids,
      .sources = on_device_.token_sources,
      .sampled = sampled_ids(),
      .slot_mapping = on_device_.slot_mapping,
      .cached_ids = reinterpret_cast<int32_t*>(cached_ids_.data()),
      .num_tokens = forward.num_tokens};
  library_.kernels().resolve_tokens(gpu_->cuda(), resolve);
  ForwardContext context{stream_, activation_dtype(options_), arena_, comm_, forward};
  return model_->forward(context, std::nullopt).hidden;
}

void GpuRunner::adjust(const Tensor& logits, const StepShape& shape, int64_t first_row) {
  const ops::CudaAdjustLogits args = {
      .logits = logits.data<float>(),
      .stride = logits.row_stride(),
      .rows = logits.dim(0),
      .vocab = logits.dim(1),
      .repetition_penalty = on_device_.repetition_penalty + first_row,
      .presence_penalty = on_device_.presence_penalty + first_row,
      .frequency_penalty = on_device_.frequency_penalty + first_row,
      .row_seqs = on_device_.row_seqs + first_row,
      .num_prompt_tokens = on_device_.num_prompt_tokens + first_row,
      .context_lens = on_device_.context_lens,
      .block_tables = on_device_.block_tables,
      .table_width = shape.table_width,
      .block_size = options_.block_size,
      .cached_ids = reinterpret_cast<const int32_t*>(cached_ids_.data()),
      .bias_start = on_device_.bias_start + first_row,
      .bias_ids = on_device_.bias_ids,
      .biases = on_device_.biases};
  library_.kernels().adjust_logits(gpu_->cuda(), args);
}

void GpuRunner::sample(const Tensor& logits, const StepShape& shape, int64_t first_row) {
  if (shape.adjusts_logits) adjust(logits, shape, first_row);
  const ops::CudaSample args = {.logits = logits.data<float>(),
                                .stride = logits.row_stride(),
                                .rows = logits.dim(0),
                                .vocab = logits.dim(1),
                                .temperature = on_device_.temperature + first_row,
                                .top_k = on_device_.top_k + first_row,
                                .top_p = on_device_.top_p + first_row,
                                .min_p = on_device_.min_p + first_row,
                                .noise_keys = on_device_.noise_keys + 2 * first_row,
                                .out = sampled_ids() + first_row,
                                .scratch = sample_scratch_.data()};
  library_.kernels().sample(gpu_->cuda(), args);
}

int32_t* GpuRunner::sampled_ids() const {
  return reinterpret_cast<int32_t*>(sampled_ids_.data());
}

Tensor GpuRunner::sampled_ids_of(int64_t first, int64_t count) const {
  return {sampled_ids() + first, DType::kInt32, {1, count}};
}

void GpuRunner::gather_sampled(int64_t num_logits) {
  const int64_t each = RowShare::rows_each(num_logits, comm_.size());
  comm_.all_gather_columns(stream_, sampled_ids_of(comm_.rank() * each, each),
                           sampled_ids_of(0, each * comm_.size()));
}

bool GpuRunner::splits_logits(const Launched& step, int64_t num_logits) const {
  // With fewer the tokens' way to the other ranks takes longer than the logits'.
  constexpr int64_t kLeastRowsEach = 4;
  const int size = comm_.size();
  return size > 1 && comm_.splits_rows() && !step.wants_logits &&
         num_logits >= kLeastRowsEach * size && RowShare(num_logits, size - 1, size).size() > 0;
}

Tensor GpuRunner::run_output(ForwardBatch& forward, const Tensor& hidden, const StepShape& shape,
                             bool splits) {
  ForwardContext context{stream_, activation_dtype(options_), arena_, comm_, forward, splits};
  const Tensor logits = model_->compute_logits(context, hidden);
  const int64_t first_row =
      splits ? RowShare(shape.num_logits, comm_.rank(), comm_.size()).begin : 0;
  sample(logits, shape, first_row);
  if (splits) gather_sampled(shape.num_logits);
  return logits;
}

Tensor GpuRunner::run_captured(const StepShape& shape, ForwardBatch& forward, bool splits) {
  // What a graph replays must not depend on this step's contexts.
  forward.max_context_len = shape.table_width * options_.block_size;
  const auto run = [&] { return run_output(forward, run_model(forward), shape, splits); };
  const auto [found, is_new] = captured_.try_emplace(
      {shape.num_seqs, shape.table_width, shape.adjusts_logits, splits}, Captured());
  Captured& captured = found->second;
  // What kernels and libraries set up at their first use cannot be captured.
  if (is_new) return run();
  if (captured.graph == nullptr) {
    gpu_->begin_capture();
    captured.logits = run();
    captured.graph = gpu_->end_capture();
  }
  gpu_->launch(*captured.graph);
  return captured.logits;
}

std::unique_ptr<PendingStep> GpuRunner::launch(const ScheduledBatch& batch) {
  settle(1);
  table_.apply(batch);
  const std::shared_ptr<Launched> step = describe(batch);
  if (batch.sequences.empty()) return std::make_unique<FinishedStep>(std::move(step->output));
  const Arena::Scope scope(arena_);
  const Tensor logits = compute(batch, builder_.build(batch, table_), *step);
  collect(batch, logits, *step);
  // The engine waits for rank 0 and goes on at once; for the others nobody needs to spin.
  step->done = gpu_->record(comm_.rank() == 0 ? EventWait::kSpin : EventWait::kSleep);
  remember(step);
  return std::make_unique<Pending>(step);
}

std::shared_ptr<GpuRunner::Launched> GpuRunner::describe(const ScheduledBatch& batch) {
  auto step = std::make_shared<Launched>();
  step->output.step = batch.step;
  step->output.sequences.resize(batch.sequences.size());
  const std::vector<SamplingPlace> places = sampling_places(batch, table_);
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ScheduledSequence& scheduled = batch.sequences[i];
    const SequenceState& state = table_.at(scheduled.id);
    check(scheduled.kind != ChunkKind::kVerify, "a GPU's chunks have no drafts");
    step->output.sequences[i].id = scheduled.id;
    step->wants_prompt_logprobs |= state.params().prompt_logprobs.has_value() &&
                                   scheduled.num_computed_tokens < state.num_prompt_tokens() - 1;
    if (!scheduled.samples) continue;
    const SamplingPlace place = places[step->sampled.size()];
    const bool on_host = place == SamplingPlace::kHost;
    step->wants_host |= on_host;
    step->adjusts_logits |= place == SamplingPlace::kGpuAdjusted;
    step->wants_logits |= on_host || state.params().logprobs.has_value();
    step->sampled.push_back({.id = scheduled.id,
                             .index = state.output_token_ids.size(),
                             .sequence = i,
                             .on_host = on_host,
                             .num_logprobs = on_host ? std::nullopt : state.params().logprobs});
  }
  std::byte* const results =
      results_->data() + next_result_ * static_cast<size_t>(sizes_.sampled_ids + sizes_.logprobs);
  next_result_ = (next_result_ + 1) % StepInputs::kRing;
  step->results = results_;
  step->ids = reinterpret_cast<int32_t*>(results);
  step->logprobs = results + sizes_.sampled_ids;
  return step;
}

Tensor GpuRunner::compute(const ScheduledBatch& batch, const ForwardBatch& host, Launched& step) {
  if (!options_.enforce_eager && !step.wants_prompt_logprobs) {
    if (auto shape = captured_shape(batch, host, sizes_.largest_step, options_.block_size)) {
      shape->adjusts_logits = step.adjusts_logits;
      ForwardBatch forward = upload(batch, host, *shape, step);
      return run_captured(*shape, forward, splits_logits(step, shape->num_logits));
    }
  }
  const auto num_logits = static_cast<int64_t>(step.sampled.size());
  const StepShape shape{.num_tokens = host.num_tokens,
                        .num_seqs = host.num_seqs,
                        .table_width = host.block_tables.dim(1),
                        .num_logits = num_logits,
                        .num_decode_items = sizes_.largest_step.num_decode_items,
                        .adjusts_logits = step.adjusts_logits};
  ForwardBatch forward = upload(batch, host, shape, step);
  const Tensor hidden = run_model(forward);
  if (step.wants_prompt_logprobs) compute_prompt_logprobs(batch, host, forward, hidden, step);
  if (num_logits == 0) return {};
  return run_output(forward, hidden, shape, splits_logits(step, num_logits));
}

void GpuRunner::collect(const ScheduledBatch& batch, const Tensor& logits, Launched& step) {
  if (step.sampled.empty()) return;
  const size_t bytes = step.sampled.size() * sizeof(int32_t);
  gpu_->copy_to_host(step.ids, sampled_ids_.data(), bytes);
  if (comm_.rank() == 0) find_logprobs(logits, step);
  if (!step.wants_host) return;
  // One rank asks the callbacks, and all go on with what it got.
  if (comm_.rank() == 0) {
    sample_on_host(batch, logits, step);
    gpu_->copy_to_device(sampled_ids_.data(), step.ids, bytes);
  }
  const auto num_ids = static_cast<int64_t>(step.sampled.size());
  comm_.broadcast(stream_, sampled_ids_of(0, num_ids), 0);
  if (comm_.rank() != 0) gpu_->copy_to_host(step.ids, sampled_ids_.data(), bytes);
}

void GpuRunner::remember(const std::shared_ptr<Launched>& step) {
  last_rows_.clear();
  for (size_t row = 0; row < step->sampled.size(); ++row) {
    last_rows_[step->sampled[row].id] = static_cast<int32_t>(row);
    table_.append_token(step->sampled[row].id, kUnknownToken);
  }
  in_flight_.push_back(step);
}

void GpuRunner::find_logprobs(const Tensor& logits, Launched& step) {
  LogprobsLayout& layout = step.logprobs_layout;
  bool wanted = false;
  for (const Launched::Sampled& sampled : step.sampled) {
    wanted |= sampled.num_logprobs.has_value();
    layout.num_top = std::max(layout.num_top, sampled.num_logprobs.value_or(0));
  }
  if (!wanted) return;
  layout.rows = static_cast<int64_t>(step.sampled.size());
  logprobs_.find(library_.kernels(), *gpu_, logits, sampled_ids(), layout, sample_scratch_.data(),
                 step.logprobs);
}

void GpuRunner::sample_on_host(const ScheduledBatch& batch, const Tensor& logits, Launched& step) {
  gpu_->synchronize();
  settle(0);
  std::vector<float> row(static_cast<size_t>(logits.dim(1)));
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    const Launched::Sampled& sampled = step.sampled[i];
    if (!sampled.on_host) continue;
    const SequenceState& state = table_.at(batch.sequences[sampled.sequence].id);
    const auto* from = logits.row<float>(static_cast<int64_t>(i));
    memory_->download(row.data(), reinterpret_cast<const std::byte*>(from),
                      row.size() * sizeof(float));
    const Tensor host_row(row.data(), DType::kFloat32, {1, logits.dim(1)});
    const LogitsRow sampled_row[] = {{&state, state.tokens().size()}};
    const ops::SampledToken token =
        sample_tokens(host_stream_, host_row, sampled_row, options_.logits_processors.get())
            .front();
    step.ids[i] = token.token_id;
    if (token.logprobs.empty()) continue;
    step.output.sequences[sampled.sequence].logprobs = {to_token_logprobs(token.logprobs)};
  }
}

void GpuRunner::compute_prompt_logprobs(const ScheduledBatch& batch, const ForwardBatch& host,
                                        const ForwardBatch& forward, const Tensor& hidden,
                                        Launched& step) {
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ScheduledSequence& scheduled = batch.sequences[i];
    const SequenceState& state = table_.at(scheduled.id);
    if (!state.params().prompt_logprobs) continue;
    // The row of position p predicts token p + 1, which has to be one of the prompt.
    const int64_t first = scheduled.num_computed_tokens;
    const int64_t last = std::min(first + scheduled.num_tokens, state.num_prompt_tokens() - 1);
    const int64_t first_row = host.query_start.data<int32_t>()[i] - first;
    for (int64_t begin = first; begin < last; begin += sizes_.largest_step.num_logits) {
      const int64_t end = std::min(last, begin + sizes_.largest_step.num_logits);
      const auto targets =
          std::span(state.request->prompt_token_ids)
              .subspan(static_cast<size_t>(begin + 1), static_cast<size_t>(end - begin));
      for (TokenLogprobs& found : prompt_logprobs(forward, hidden, first_row + begin, targets,
                                                  *state.params().prompt_logprobs, step)) {
        step.output.sequences[i].prompt_logprobs.push_back(std::move(found));
      }
    }
  }
}

std::vector<TokenLogprobs> GpuRunner::prompt_logprobs(const ForwardBatch& forward,
                                                      const Tensor& hidden, int64_t first_row,
                                                      std::span<const int32_t> targets, int num_top,
                                                      Launched& step) {
  const auto num_rows = static_cast<int64_t>(targets.size());
  // The ids of the step before are taken by now, and those of this one are still to be sampled.
  int32_t* const on_gpu = sampled_ids();
  const auto set = [&](std::span<const int32_t> values) {
    gpu_->synchronize();
    std::copy(values.begin(), values.end(), step.ids);
    gpu_->copy_to_device(on_gpu, step.ids, values.size_bytes());
  };
  std::vector<int32_t> rows(targets.size());
  std::iota(rows.begin(), rows.end(), static_cast<int32_t>(first_row));
  set(rows);
  const Arena::Scope scope(arena_);
  ForwardBatch part = forward;
  part.logits_rows = Tensor(on_gpu, DType::kInt32, {num_rows});
  ForwardContext context{stream_, activation_dtype(options_), arena_, comm_, part};
  const Tensor logits = model_->compute_logits(context, hidden);
  if (comm_.rank() != 0) return {};
  set(targets);
  const LogprobsLayout layout{num_rows, num_top};
  logprobs_.find(library_.kernels(), *gpu_, logits, on_gpu, layout, sample_scratch_.data(),
                 step.logprobs);
  gpu_->synchronize();
  std::vector<TokenLogprobs> found;
  for (int64_t row = 0; row < num_rows; ++row) {
    found.push_back(
        GpuLogprobs::read(step.logprobs, layout, row, targets[static_cast<size_t>(row)], num_top));
  }
  return found;
}

}  // namespace quire
