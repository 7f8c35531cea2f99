#include "runner/eagle_drafter.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "loader/checkpoint.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "ops/cpu/tasks.h"
#include "ops/embedding.h"
#include "runner/host_sampler.h"

namespace quire {
namespace {

using EagleClock = std::chrono::steady_clock;

double elapsed_s(EagleClock::time_point start) {
  return std::chrono::duration<double>(EagleClock::now() - start).count();
}

ModelOptions head_part(const RunnerOptions& options, const Communicator& comm) {
  ModelOptions part = options.draft->model;
  part.rank = comm.rank();
  part.size = comm.size();
  return part;
}

bool has_drafts_to_make(const ScheduledSequence& chunk) {
  return !chunk.draft_token_ids.empty() && chunk.draft_token_ids.front() == kDraftOfRunner;
}

int64_t num_to_make(const StepSequence& sequence) {
  return std::ssize(sequence.chunk.draft_token_ids);
}

size_t bytes_of_rows(int64_t rows, int64_t width) {
  return align_up(static_cast<size_t>(rows) * static_cast<size_t>(width) * sizeof(float));
}

size_t arena_bytes(const RunnerOptions& options, const ModelOptions& head) {
  return CountedModel(head).activation_bytes(options.max_tokens, options.max_logits_rows) +
         bytes_of_rows(options.max_logits_rows, head.config.vocab_size);
}

}  // namespace

int64_t EagleDrafter::step_bytes(const RunnerOptions& options) {
  const ModelOptions& head = options.draft->model;
  return static_cast<int64_t>(bytes_of_rows(options.max_num_seqs, head.config.hidden_size) +
                              bytes_of_rows(options.max_logits_rows, head.config.vocab_size));
}

int64_t EagleDrafter::bytes_per_token(const ModelOptions& head) {
  return head.config.hidden_size * int64_t{sizeof(float)};
}

EagleDrafter::EagleDrafter(const RunnerOptions& options, const Model& target, Communicator& comm,
                           Stream& stream)
    : options_(options),
      comm_(comm),
      stream_(stream),
      head_(head_part(options, comm)),
      kv_cache_(head_.kv_cache_shape(), options.draft->kv_cache_dtype, options.block_size,
                options.num_blocks),
      arena_(Buffer(arena_bytes(options, head_part(options, comm)))),
      builder_(options.block_size),
      slots_(options.num_blocks, options.block_size),
      row_ids_(static_cast<size_t>(options.max_tokens)),
      known_memory_(bytes_of_rows(options.num_blocks * options.block_size,
                                  options.draft->model.config.hidden_size)),
      drafted_memory_(
          bytes_of_rows(options.max_num_seqs, options.draft->model.config.hidden_size)) {
  const int64_t width = options.draft->model.config.hidden_size;
  std::iota(row_ids_.begin(), row_ids_.end(), 0);
  known_ = Tensor(known_memory_.data(), DType::kFloat32,
                  {options.num_blocks * options.block_size, width});
  drafted_ = Tensor(drafted_memory_.data(), DType::kFloat32, {options.max_num_seqs, width});
  head_.share(target.vocab_tables(), as_tensor(row_ids_));
  head_.bind_cache(stream_, comm_, kv_cache_.layers());
}

void EagleDrafter::load(const ProgressCallback& on_progress) {
  if (options_.load_format == LoadFormat::kDummy) {
    fill_dummy_weights(head_.parameters(), options_.seed, stream_.pool(), on_progress);
    return;
  }
  const Checkpoint checkpoint = Checkpoint::open(options_.draft->folder);
  load_weights(checkpoint, head_.parameters(), stream_.pool(), on_progress);
}

void EagleDrafter::keep(const Tensor& states, std::span<const int64_t> slots) {
  const Arena::Scope scope(arena_);
  ForwardBatch rows;
  rows.num_tokens = states.dim(0);
  ForwardContext context{stream_, DType::kFloat32, arena_, comm_, rows};
  Tensor known = states;
  if (head_.projects()) {
    known = arena_.allocate(DType::kFloat32, {rows.num_tokens, known_.dim(1)});
    head_.project(context, states, known);
  }
  const Tensor places(const_cast<int64_t*>(slots.data()), DType::kInt64, {rows.num_tokens});
  ops::scatter_rows(stream_, known, places, known_);
}

double EagleDrafter::read_prompts(std::span<const Piece> prompts) {
  const EagleClock::time_point start = EagleClock::now();
  std::vector<Piece> pieces;
  for (const Piece& prompt : prompts) {
    SequenceState& state = *prompt.state;
    // Where the text before was not read, it would take longer than the step may.
    if (slots_.first_missing(state.block_table, prompt.begin) < prompt.begin) continue;
    // A row needs the token behind it.
    const auto num_known =
        std::ssize(state.tokens()) - static_cast<int64_t>(state.awaits_token() ? 1 : 0);
    const int64_t end = std::min(prompt.end, num_known - 1);
    take(state, slots_.first_missing(state.block_table, end), end, pieces);
  }
  read(pieces);
  return elapsed_s(start);
}

DraftTimes EagleDrafter::make_drafts(std::span<const StepSequence> sequences) {
  DraftTimes times;
  for (const StepSequence& sequence : sequences) {
    slots_.forget(sequence.state.block_table, sequence.begin, sequence.end());
  }
  EagleClock::time_point start = EagleClock::now();
  std::vector<const StepSequence*> drafting;
  for (const StepSequence& sequence : sequences) {
    if (has_drafts_to_make(sequence.chunk)) drafting.push_back(&sequence);
  }
  read(take_unread(drafting));
  times.reading_s = elapsed_s(start);

  start = EagleClock::now();
  for (int64_t index = 0; !drafting.empty(); ++index) {
    make_draft(drafting, index);
    // Who goes on finds its row of this pass.
    drafted_of_.clear();
    for (size_t i = 0; i < drafting.size(); ++i) {
      if (num_to_make(*drafting[i]) > index + 1) drafted_of_.push_back(static_cast<int32_t>(i));
    }
    std::erase_if(drafting, [&](const StepSequence* s) { return num_to_make(*s) == index + 1; });
  }
  times.drafting_s = elapsed_s(start);
  return times;
}

void EagleDrafter::take(SequenceState& state, int64_t begin, int64_t end,
                        std::vector<Piece>& pieces) {
  if (begin >= end) return;
  slots_.fill(state.block_table, begin, end);
  pieces.push_back({&state, begin, end});
}

std::vector<EagleDrafter::Piece> EagleDrafter::take_unread(
    std::span<const StepSequence* const> drafting) {
  std::vector<Piece> pieces;
  // Each sequence's first draft takes a row; what is left holds what the last steps brought.
  int64_t spare = options_.max_tokens - std::ssize(drafting);
  for (const StepSequence* sequence : drafting) {
    const int64_t last = sequence->begin - 1;
    const int64_t begin = slots_.first_missing(sequence->state.block_table, last);
    const int64_t unread = last - begin;
    if (unread <= std::min<int64_t>(spare, kMaxTokensPerStep)) {
      spare -= unread;
    } else {
      take(sequence->state, begin, last, pieces);
    }
  }
  return pieces;
}

void EagleDrafter::read(std::span<const Piece> pieces) {
  for_each_round(pieces, options_.max_tokens, [this](std::span<const Piece> round) {
    run(round, Known::kOfTokens, [](const ForwardBatch&, const IntermediateTensors&) {});
  });
}

void EagleDrafter::make_draft(std::span<const StepSequence* const> sequences, int64_t index) {
  std::vector<Piece> pieces;
  for (const StepSequence* sequence : sequences) {
    SequenceState& state = sequence->state;
    const int64_t end = sequence->begin + index;
    // Rows of drafts stay unread: they are of guesses.
    int64_t begin = end - 1;
    if (index == 0) {
      begin = std::min(begin, slots_.first_missing(state.block_table, end));
      slots_.fill(state.block_table, begin, end);
    }
    pieces.push_back({&state, begin, end});
  }
  run(pieces, index == 0 ? Known::kOfTokens : Known::kOfDrafts,
      [&](const ForwardBatch& forward, const IntermediateTensors& state) {
        ops::gather_rows(stream_, state.residual, forward.logits_rows,
                         drafted_.rows(0, std::ssize(pieces)));
        const std::vector<int32_t> ids = sample(forward, state.hidden, pieces);
        for (size_t i = 0; i < pieces.size(); ++i) {
          SequenceState& drafted = *pieces[i].state;
          const auto place = static_cast<size_t>(pieces[i].end + 1 - drafted.num_prompt_tokens());
          drafted.output_token_ids[place] = ids[i];
        }
      });
}

template <typename WithState>
void EagleDrafter::run(std::span<const Piece> pieces, Known known, const WithState& with_state) {
  std::vector<ScheduledSequence> chunks;
  std::vector<StepSequence> sequences;
  chunks.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    chunks.push_back({.num_tokens = piece.end - piece.begin, .samples = true});
    sequences.push_back({.chunk = chunks.back(), .state = *piece.state, .begin = piece.begin});
  }
  const ForwardBatch forward = builder_.build(sequences);
  std::vector<int32_t> slots(static_cast<size_t>(forward.num_tokens));
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const TokenView tokens = piece.state->tokens();
    for (int64_t position = piece.begin; position < piece.end; ++position, ++row) {
      forward.token_ids.data<int32_t>()[row] = tokens[static_cast<size_t>(position + 1)];
      slots[static_cast<size_t>(row)] =
          static_cast<int32_t>(forward.slot_mapping.data<int64_t>()[row]);
    }
  }
  const Arena::Scope scope(arena_);
  ForwardContext context{stream_, DType::kFloat32, arena_, comm_, forward};
  const auto shape = {forward.num_tokens, known_.dim(1)};
  const IntermediateTensors rows = {.hidden = arena_.allocate(DType::kFloat32, shape),
                                    .residual = arena_.allocate(DType::kFloat32, shape)};
  if (known == Known::kOfTokens) {
    ops::gather_rows(stream_, known_, as_tensor(slots), rows.residual);
  } else {
    ops::gather_rows(stream_, drafted_, as_tensor(drafted_of_), rows.residual);
  }
  with_state(forward, head_.forward(context, rows));
}

std::vector<int32_t> EagleDrafter::sample(const ForwardBatch& forward, const Tensor& hidden,
                                          std::span<const Piece> pieces) {
  std::vector<LogitsRow> rows;
  for (const Piece& piece : pieces) {
    rows.push_back({.state = piece.state, .num_tokens = static_cast<size_t>(piece.end + 1)});
  }
  std::vector<int32_t> ids(rows.size());
  const auto most = static_cast<size_t>(options_.max_logits_rows);
  for (size_t begin = 0; begin < rows.size(); begin += most) {
    const size_t end = std::min(rows.size(), begin + most);
    const Arena::Scope scope(arena_);
    ForwardBatch part = forward;
    part.logits_rows =
        forward.logits_rows.rows(static_cast<int64_t>(begin), static_cast<int64_t>(end));
    ForwardContext context{stream_, DType::kFloat32, arena_, comm_, part};
    const Tensor logits = head_.compute_logits(context, hidden);
    if (comm_.rank() != 0) continue;
    sample_drafts(stream_, spread(logits), std::span(rows).subspan(begin, end - begin),
                  options_.token_masks.get(), std::span(ids).subspan(begin, end - begin));
  }
  comm_.broadcast(stream_, as_tensor(ids), 0);
  return ids;
}

Tensor EagleDrafter::spread(const Tensor& logits) {
  const std::vector<int32_t>& draft_ids = options_.draft->model.eagle->draft_ids;
  if (draft_ids.empty()) return logits;
  const int64_t vocab = options_.draft->model.config.vocab_size;
  const Tensor all = arena_.allocate(DType::kFloat32, {logits.dim(0), vocab});
  ops::for_each_row(stream_, logits.dim(0), vocab, [&](int64_t row) {
    float* const out = all.row<float>(row);
    std::fill_n(out, vocab, -std::numeric_limits<float>::infinity());
    for (size_t draft = 0; draft < draft_ids.size(); ++draft) {
      out[draft_ids[draft]] = logits.row<float>(row)[draft];
    }
  });
  return all;
}

}  // namespace quire
