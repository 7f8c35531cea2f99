// The sampling of a step on a GPU: adjustments, masks, log-probabilities, and what is left to the
// host.
#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/check.h"
#include "runner/gpu_launched.h"
#include "runner/gpu_runner.h"
#include "runner/host_sampler.h"
#include "runner/sampling_rows.h"

namespace quire {
namespace {

// Rows of logits that the host samples at a time, 40 MB of a vocabulary of 152,000.
constexpr size_t kHostRows = 64;

}  // namespace

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
      .history_lens = on_device_.history_lens + first_row,
      .block_tables = on_device_.block_tables,
      .table_width = shape.table_width,
      .block_size = options_.block_size,
      .cached_ids = reinterpret_cast<const int32_t*>(cached_ids_.data()),
      .bias_start = on_device_.bias_start + first_row,
      .biases = on_device_.biases};
  library_.kernels().adjust_logits(gpu_->cuda(), args);
}

ops::CudaSample GpuRunner::sample_args(const Tensor& logits, int64_t first_row) const {
  return {.logits = logits.data<float>(),
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
}

void GpuRunner::sample(const Tensor& logits, const StepShape& shape, int64_t first_row) {
  if (shape.adjusts_logits) adjust(logits, shape, first_row);
  library_.kernels().sample(gpu_->cuda(), sample_args(logits, first_row));
}

void GpuRunner::make_masks(std::span<const StepSequence> sequences, Launched& step) {
  check(options_.token_masks != nullptr, "who constrains requests has their masks");
  settle(0);  // masks depend on the tokens before them
  learn_drafts(sequences, step);
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    if (step.sampled[i].is_masked) step.masks.rows.push_back({.row = i, .mask = nullptr});
  }
  pool_.parallel_for(std::ssize(step.masks.rows), [&](int64_t task, int) {
    StepMasks::Row& row = step.masks.rows[static_cast<size_t>(task)];
    const Launched::Sampled& sampled = step.sampled[row.row];
    const SequenceState& state = sequences[sampled.sequence].state;
    row.mask = options_.token_masks->at(*state.request, state.index,
                                        std::span(state.output_token_ids).first(sampled.index),
                                        sampled.has_drafts);
  });
}

void GpuRunner::sample_masked(std::span<const StepSequence> sequences, const Tensor& logits,
                              Launched& step) {
  // The others get its tokens.
  if (comm_.rank() != 0) return;
  make_masks(sequences, step);
  const UploadedMasks masks =
      masks_->upload(pool_, step.masks.rows, logits.dim(0), MaskChoice::kAll);
  if (step.shape.adjusts_logits) adjust(logits, step.shape, 0);
  ops::CudaSample args = sample_args(logits, 0);
  args.mask_rows = masks.rows;
  args.masks = masks.masks;
  library_.kernels().sample(gpu_->cuda(), args);
  if (!step.masks.take_all()) sample_again(args, step);
}

void GpuRunner::sample_again(ops::CudaSample args, Launched& step) {
  const size_t bytes = step.sampled.size() * sizeof(int32_t);
  const auto learn_ids = [&] {
    gpu_->copy_to_host(step.ids, sampled_ids_.data(), bytes);
    gpu_->synchronize();
  };
  step.masks.claim();
  learn_ids();
  step.masks.tell(step.ids, &pool_);
  if (!step.masks.has_refused()) return;
  const UploadedMasks masks =
      masks_->upload(pool_, step.masks.rows, args.rows, MaskChoice::kRefused);
  args.mask_rows = masks.rows;
  args.masks = masks.masks;
  args.kept_ids = args.out;
  library_.kernels().sample(gpu_->cuda(), args);
  learn_ids();
  step.masks.tell_again(step.ids);
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

void GpuRunner::sample_on_host(std::span<const StepSequence> sequences, const Tensor& logits,
                               Launched& step) {
  gpu_->synchronize();
  settle(0);
  learn_drafts(sequences, step);
  std::vector<size_t> on_host;
  for (size_t i = 0; i < step.sampled.size(); ++i) {
    if (step.sampled[i].on_host) on_host.push_back(i);
  }
  for (size_t begin = 0; begin < on_host.size(); begin += kHostRows) {
    const size_t count = std::min(kHostRows, on_host.size() - begin);
    sample_on_host(sequences, logits, std::span(on_host).subspan(begin, count), step);
  }
}

void GpuRunner::sample_on_host(std::span<const StepSequence> sequences, const Tensor& logits,
                               std::span<const size_t> rows, Launched& step) {
  const auto width = static_cast<size_t>(logits.dim(1));
  std::vector<float> values(rows.size() * width);
  std::vector<LogitsRow> host_rows;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto* from = logits.row<float>(static_cast<int64_t>(rows[i]));
    memory_->download(&values[i * width], reinterpret_cast<const std::byte*>(from),
                      width * sizeof(float));
    const Launched::Sampled& sampled = step.sampled[rows[i]];
    const SequenceState& state = sequences[sampled.sequence].state;
    host_rows.push_back({.state = &state,
                         .num_tokens = state.request->prompt_token_ids.size() + sampled.index,
                         .has_drafts = sampled.has_drafts});
  }
  const Tensor host_logits(values.data(), DType::kFloat32, {std::ssize(rows), logits.dim(1)});
  const std::vector<ops::SampledToken> tokens =
      sample_rows(host_stream_, host_logits, host_rows,
                  {options_.logits_processors.get(), options_.token_masks.get()});
  for (size_t i = 0; i < rows.size(); ++i) {
    step.ids[rows[i]] = tokens[i].token_id;
    if (tokens[i].logprobs.empty()) continue;
    step.host_logprobs.emplace(rows[i], to_token_logprobs(tokens[i].logprobs));
  }
}

void GpuRunner::compute_prompt_logprobs(std::span<const PromptRows> prompts, const StepLoras& loras,
                                        const ForwardBatch& forward, const Tensor& hidden,
                                        Launched& step) {
  for (const PromptRows& prompt : prompts) {
    const auto num_rows = static_cast<int64_t>(prompt.targets.size());
    const int32_t lora_slot =
        loras.any() ? loras.row_slots[static_cast<size_t>(prompt.first_row)] : -1;
    prompt_ids_.upload(*gpu_, prompt, lora_slot);
    const Arena::Scope scope(arena_);
    ForwardBatch part = forward;
    part.logits_rows = Tensor(prompt_ids_.rows(), DType::kInt32, {num_rows});
    ForwardContext context{stream_, options_.model.dtype, arena_, comm_, part};
    std::optional<GpuLoraStep> lora_step;
    if (lora_slot >= 0) {
      lora_step.emplace(
          lora_slots_->logits_step(prompt_ids_.lora_rows(prompt), lora_slot, loras.extras));
      context.gpu_lora = &*lora_step;
    }
    const Tensor logits = model_->compute_logits(context, hidden);
    // Nobody reads those of the other ranks.
    if (comm_.rank() != 0) continue;
    const LogprobsLayout layout{num_rows, prompt.num_top};
    logprobs_.find(library_.kernels(), *gpu_, logits, prompt_ids_.targets(), layout,
                   sample_scratch_.data(), step.logprobs);
    gpu_->synchronize();
    std::vector<TokenLogprobs>& found = step.output.sequences[prompt.sequence].prompt_logprobs;
    for (int64_t row = 0; row < num_rows; ++row) {
      const int32_t target = prompt.targets[static_cast<size_t>(row)];
      found.push_back(GpuLogprobs::read(step.logprobs, layout, row, target, prompt.num_top));
    }
  }
}

}  // namespace quire
