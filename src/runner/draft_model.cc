#include "runner/draft_model.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "loader/checkpoint.h"
#include "loader/weight_loader.h"
#include "models/counted_model.h"
#include "models/families.h"
#include "runner/host_sampler.h"

namespace quire {
namespace {

using DraftClock = std::chrono::steady_clock;

double seconds_since(DraftClock::time_point start) {
  return std::chrono::duration<double>(DraftClock::now() - start).count();
}

ModelOptions draft_part(const RunnerOptions& options, const Communicator& comm) {
  ModelOptions part = options.draft->model;
  part.rank = comm.rank();
  part.size = comm.size();
  return part;
}

bool wants_drafts(const ScheduledSequence& chunk) {
  return !chunk.draft_token_ids.empty() && chunk.draft_token_ids.front() == kDraftOfRunner;
}

int64_t num_drafts_of(const StepSequence& sequence) {
  return std::ssize(sequence.chunk.draft_token_ids);
}

}  // namespace

DraftModel::DraftModel(const RunnerOptions& options, Communicator& comm, Stream& stream)
    : options_(options),
      comm_(comm),
      stream_(stream),
      model_(create_model(draft_part(options, comm))),
      kv_cache_(model_->kv_cache_shape(), options.draft->kv_cache_dtype, options.block_size,
                options.num_blocks),
      arena_(Buffer(CountedModel(draft_part(options, comm))
                        .activation_bytes(options.max_tokens, options.max_logits_rows))),
      builder_(options.block_size),
      slots_(options.num_blocks, options.block_size) {
  model_->bind_cache(stream_, comm_, kv_cache_.layers());
}

void DraftModel::load(const ProgressCallback& on_progress) {
  if (options_.load_format == LoadFormat::kDummy) {
    fill_dummy_weights(model_->parameters(), options_.seed, stream_.pool(), on_progress);
    return;
  }
  const Checkpoint checkpoint = Checkpoint::open(options_.draft->folder);
  load_weights(checkpoint, model_->parameters(), stream_.pool(), on_progress);
}

DraftModel::Times DraftModel::make_drafts(const ScheduledBatch& batch,
                                          std::span<const StepSequence> sequences) {
  Times times;
  for (const StepSequence& sequence : sequences) {
    slots_.forget(sequence.state.block_table, sequence.begin, sequence.end());
  }
  DraftClock::time_point start = DraftClock::now();
  read(take_unread(batch, sequences));
  times.reading_s = seconds_since(start);

  start = DraftClock::now();
  std::vector<const StepSequence*> drafting;
  for (const StepSequence& sequence : sequences) {
    if (wants_drafts(sequence.chunk)) drafting.push_back(&sequence);
  }
  for (int64_t index = 0; !drafting.empty(); ++index) {
    make_draft(drafting, index);
    std::erase_if(drafting, [&](const StepSequence* s) { return num_drafts_of(*s) == index + 1; });
  }
  times.drafting_s = seconds_since(start);
  return times;
}

std::vector<DraftModel::Piece> DraftModel::take_unread(const ScheduledBatch& batch,
                                                       std::span<const StepSequence> sequences) {
  std::vector<Piece> pieces;
  const auto take = [&](SequenceState& state, int64_t begin, int64_t end) {
    if (begin >= end) return;
    slots_.fill(state.block_table, begin, end);
    pieces.push_back({&state, begin, end});
  };
  for (const StepSequence& sequence : sequences) {
    SequenceState& state = sequence.state;
    const std::vector<int32_t>& table = state.block_table;
    if (sequence.chunk.kind == ChunkKind::kPrefill) {
      // Where the text before was not read, it would take longer than the step may.
      const bool follows = slots_.first_missing(table, sequence.begin) == sequence.begin;
      if (batch.drafter_reads_prompts && follows) take(state, sequence.begin, sequence.end());
    } else if (wants_drafts(sequence.chunk)) {
      // The last token but one is read with the newest where it is the only one: where all drafts
      // were kept it was the last of them, behind which none was made.
      const int64_t newest = sequence.begin;
      const int64_t begin = slots_.first_missing(table, newest);
      if (begin < newest - 1) take(state, begin, newest);
    }
  }
  return pieces;
}

void DraftModel::read(std::span<const Piece> pieces) {
  for_each_round(pieces, options_.max_tokens, [this](std::span<const Piece> round) {
    run(round, false, [](const ForwardBatch&, const Tensor&) {});
  });
}

void DraftModel::make_draft(std::span<const StepSequence* const> sequences, int64_t index) {
  std::vector<Piece> pieces;
  for (const StepSequence* sequence : sequences) {
    SequenceState& state = sequence->state;
    const int64_t end = sequence->begin + index + 1;
    const int64_t begin = slots_.first_missing(state.block_table, end);
    // Another sequence cannot have filled the newest token's slot, which nobody shares.
    check(begin < end, "a draft is made behind a token that was not read");
    slots_.fill(state.block_table, begin, end);
    pieces.push_back({&state, begin, end});
  }
  run(pieces, true, [&](const ForwardBatch& forward, const Tensor& hidden) {
    const std::vector<int32_t> ids = sample(forward, hidden, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      SequenceState& state = *pieces[i].state;
      const auto place = static_cast<size_t>(pieces[i].end - state.num_prompt_tokens());
      state.output_token_ids[place] = ids[i];
    }
  });
}

template <typename WithHidden>
void DraftModel::run(std::span<const Piece> pieces, bool wants_logits,
                     const WithHidden& with_hidden) {
  std::vector<ScheduledSequence> chunks;
  std::vector<StepSequence> sequences;
  chunks.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    chunks.push_back({.num_tokens = piece.end - piece.begin, .samples = wants_logits});
    sequences.push_back({.chunk = chunks.back(), .state = *piece.state, .begin = piece.begin});
  }
  const ForwardBatch forward = builder_.build(sequences);
  const Arena::Scope scope(arena_);
  ForwardContext context{stream_, DType::kFloat32, arena_, comm_, forward};
  const Tensor hidden = model_->forward(context, std::nullopt).hidden;
  with_hidden(forward, hidden);
}

std::vector<int32_t> DraftModel::sample(const ForwardBatch& forward, const Tensor& hidden,
                                        std::span<const Piece> pieces) {
  std::vector<LogitsRow> rows;
  for (const Piece& piece : pieces) {
    rows.push_back({.state = piece.state, .num_tokens = static_cast<size_t>(piece.end)});
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
    const Tensor logits = model_->compute_logits(context, hidden);
    if (comm_.rank() != 0) continue;
    sample_drafts(stream_, logits, std::span(rows).subspan(begin, end - begin),
                  options_.token_masks.get(), std::span(ids).subspan(begin, end - begin));
  }
  comm_.broadcast(stream_, as_tensor(ids), 0);
  return ids;
}

}  // namespace quire
