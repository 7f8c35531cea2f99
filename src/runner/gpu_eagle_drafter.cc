#include "runner/gpu_eagle_drafter.h"

#include <algorithm>
#include <numeric>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/embedding.h"

namespace quire {
namespace {

int64_t width_of_states(const ModelOptions& head) {
  const EagleConfig& eagle = *head.eagle;
  return static_cast<int64_t>(eagle.aux_layers.size()) * eagle.target_hidden_size;
}

size_t bytes_of_matrix(int64_t rows, int64_t width, DType dtype) {
  return align_up(static_cast<size_t>(rows) * static_cast<size_t>(width) * size_of(dtype));
}

// A GPU's kernels read rows of logits 32 bytes at a time.
int64_t padded_vocab(const ModelOptions& head) {
  return round_up<int64_t>(head.config.vocab_size, 8);
}

// Logits over the model's vocabulary.
size_t bytes_of_spread_logits(const RunnerOptions& options) {
  const ModelOptions& head = options.draft->model;
  if (head.eagle->draft_ids.empty()) return 0;
  return bytes_of_matrix(max_drafting(options), padded_vocab(head), DType::kFloat32);
}

size_t bytes_of_draft_ids(const ModelOptions& head) {
  return head.eagle->draft_ids.empty() ? 0
                                       : bytes_of_matrix(1, head.config.vocab_size, DType::kInt32);
}

}  // namespace

int64_t GpuEagleDrafter::extra_step_bytes(const RunnerOptions& options) {
  const ModelOptions& head = options.draft->model;
  return static_cast<int64_t>(
      bytes_of_spread_logits(options) +
      bytes_of_matrix(options.max_tokens, width_of_states(head), head.dtype) +
      bytes_of_matrix(options.max_tokens, 1, DType::kInt32) +
      bytes_of_matrix(max_drafting(options), head.config.hidden_size, head.dtype) +
      bytes_of_draft_ids(head));
}

int64_t GpuEagleDrafter::known_bytes_per_token(const ModelOptions& head) {
  return head.config.hidden_size * static_cast<int64_t>(size_of(head.dtype));
}

GpuEagleDrafter::GpuEagleDrafter(const RunnerOptions& options, const GpuDraftHome& home,
                                 const ModelOptions& part, const Model& target)
    : GpuDrafter(options, home, part, static_cast<int64_t>(bytes_of_spread_logits(options)), 1),
      states_memory_(bytes_of_matrix(options.max_tokens, width_of_states(part), part.dtype),
                     home.device),
      row_ids_(bytes_of_matrix(options.max_tokens, 1, DType::kInt32), home.device),
      known_memory_(static_cast<size_t>(options.num_blocks * options.block_size *
                                        known_bytes_per_token(part)),
                    home.device),
      drafted_memory_(bytes_of_matrix(max_drafting(options), part.config.hidden_size, part.dtype),
                      home.device),
      draft_ids_(bytes_of_draft_ids(part), home.device) {
  const int64_t width = part.config.hidden_size;
  known_ =
      Tensor(known_memory_.data(), part.dtype, {options.num_blocks * options.block_size, width});
  drafted_ = Tensor(drafted_memory_.data(), part.dtype, {max_drafting(options), width});
  DeviceMemory& memory = *home.device.memory;
  const auto num_rows = static_cast<size_t>(options.max_tokens);
  memory.upload(row_ids_.data(), num_rows * sizeof(int32_t), [&](std::byte* to) {
    auto* rows = reinterpret_cast<int32_t*>(to);
    std::iota(rows, rows + num_rows, 0);
  });
  const std::vector<int32_t>& draft_ids = part.eagle->draft_ids;
  if (!draft_ids.empty()) {
    const auto vocab = static_cast<size_t>(part.config.vocab_size);
    memory.upload(draft_ids_.data(), vocab * sizeof(int32_t), [&](std::byte* to) {
      auto* by_token = reinterpret_cast<int32_t*>(to);
      std::fill_n(by_token, vocab, -1);
      for (size_t i = 0; i < draft_ids.size(); ++i)
        by_token[draft_ids[i]] = static_cast<int32_t>(i);
    });
  }
  head().share(target.vocab_tables(), Tensor(row_ids_.data(), DType::kInt32, {options.max_tokens}));
}

const AuxStates* GpuEagleDrafter::states_of(int64_t num_tokens) {
  const ModelOptions& head = options().draft->model;
  states_.layers = head.eagle->aux_layers;
  states_.rows = Tensor(row_ids_.data(), DType::kInt32, {num_tokens});
  states_.has_all_rows = true;
  states_.out = Tensor(states_memory_.data(), dtype(), {num_tokens, width_of_states(head)});
  return &states_;
}

void GpuEagleDrafter::keep(const ForwardBatch& forward) {
  const Arena::Scope scope(arena());
  ForwardContext context{home().stream, dtype(), arena(), home().comm, forward};
  Tensor known = states_.out;
  if (head().projects()) {
    known = arena().allocate(dtype(), {forward.num_tokens, known_.dim(1)});
    head().project(context, states_.out, known);
  }
  ops::scatter_rows(home().stream, known, forward.slot_mapping, known_);
}

void GpuEagleDrafter::read_prompts(std::span<const DraftPiece> prompts, GpuDraftEvents& events) {
  std::vector<Piece> pieces;
  for (const DraftPiece& prompt : prompts) {
    SequenceState& state = *prompt.state;
    // Where the text before was not read, it would take longer than the step may.
    if (slots().first_missing(state.block_table, prompt.begin) < prompt.begin) continue;
    // A row needs the token behind it, and the host has to know it.
    const auto num_known =
        std::ssize(state.tokens()) - static_cast<int64_t>(state.awaits_token() ? 1 : 0);
    const int64_t end = std::min(prompt.end, num_known - 1);
    take(state, slots().first_missing(state.block_table, end), end, pieces);
  }
  read(pieces, events);
}

std::vector<GpuDrafter::Piece> GpuEagleDrafter::take_unread(const ScheduledBatch&,
                                                            std::span<const StepSequence>) {
  std::vector<Piece> pieces;
  // Each sequence's first draft takes a row; what is left holds what the last steps brought.
  int64_t spare = options().max_tokens - std::ssize(drafting());
  const int64_t most = sizes().largest_step.max_decode_queries - 1;
  for (const StepSequence* sequence : drafting()) {
    const int64_t last = first_end(*sequence) - 1;
    const int64_t begin = slots().first_missing(sequence->state.block_table, last);
    const int64_t unread = last - begin;
    if (unread <= std::min(spare, most)) {
      spare -= unread;
    } else {
      take(sequence->state, begin, last, pieces);
    }
  }
  return pieces;
}

Tensor GpuEagleDrafter::run_model(ForwardContext& context, size_t pass, const int32_t* known_rows) {
  const int64_t num_tokens = context.batch.num_tokens;
  IntermediateTensors rows = {.hidden = arena().allocate(dtype(), {num_tokens, known_.dim(1)}),
                              .residual = drafted_.rows(0, std::min(num_tokens, drafted_.dim(0)))};
  if (pass > 0) return head().forward(context, rows).hidden;
  rows.residual = arena().allocate(dtype(), {num_tokens, known_.dim(1)});
  const Tensor places(const_cast<int32_t*>(known_rows), DType::kInt32, {num_tokens});
  ops::gather_rows(context.stream, known_, places, rows.residual);
  const IntermediateTensors state = head().forward(context, rows);
  const int64_t num_drafting = context.batch.logits_rows.dim(0);
  if (num_drafting > 0) {
    ops::gather_rows(context.stream, state.residual, context.batch.logits_rows,
                     drafted_.rows(0, num_drafting));
  }
  return state.hidden;
}

Tensor GpuEagleDrafter::compute_logits(ForwardContext& context, const Tensor& hidden) {
  if (draft_ids_.size() == 0) return head().compute_logits(context, hidden);
  const ModelOptions& head_options = options().draft->model;
  const int64_t vocab = head_options.config.vocab_size;
  const Tensor all =
      arena()
          .allocate(DType::kFloat32, {context.batch.logits_rows.dim(0), padded_vocab(head_options)})
          .columns(0, vocab);
  const Tensor logits = head().compute_logits(context, hidden);
  ops::gather_columns(context.stream, logits, Tensor(draft_ids_.data(), DType::kInt32, {vocab}),
                      all);
  return all;
}

}  // namespace quire
