#include "runner/gpu_batch.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/cuda/decode_items.h"
#include "ops/decoder_step.h"
#include "ops/sampling_noise.h"
#include "runner/sampling_rows.h"

namespace quire {
namespace {

// Larger steps take long enough to be queued one kernel after the other.
constexpr int64_t kMostCapturedRows = 1024;
// Block tables of captured steps have room for this many tokens, or as much as whole blocks hold of
// them, times a power of four. As many are the most that the kernel of a whole step takes with
// drafts.
constexpr int64_t kLeastTableTokens = 1024;

// Writes how each row of logits is adjusted and sampled, one row after the other.
class SamplingWriter {
 public:
  SamplingWriter(const StepShape& shape, const StepArrays& arrays)
      : shape_(shape), arrays_(arrays) {}

  // The row of the token behind the first `num_tokens` of a sequence; seq: its number in the step.
  void add(const SequenceState& state, size_t num_tokens, SamplingPlace place, int64_t seq) {
    const ops::SamplingRow row = to_sampling_row(state, num_tokens);
    const ops::NoiseKey key = ops::noise_key(row.seed, row.index, row.position);
    arrays_.temperature[row_] = row.temperature;
    arrays_.top_k[row_] = row.top_k;
    arrays_.top_p[row_] = row.top_p;
    arrays_.min_p[row_] = row.min_p;
    arrays_.noise_keys[2 * row_] = key.low;
    arrays_.noise_keys[2 * row_ + 1] = key.high;
    if (place == SamplingPlace::kGpuAdjusted) {
      add_adjustments(row, state.num_prompt_tokens(), num_tokens, seq);
    } else if (shape_.adjusts_logits) {
      add_adjustments(ops::SamplingRow(), 0, 0, 0);
    }
    ++row_;
  }

  // Greedy rows without adjustments, up to the step's size.
  void pad() {
    for (; row_ < shape_.num_logits; ++row_) {
      arrays_.temperature[row_] = 0.0f;
      arrays_.top_k[row_] = 0;
      arrays_.top_p[row_] = 1.0f;
      arrays_.min_p[row_] = 0.0f;
      arrays_.noise_keys[2 * row_] = 0;
      arrays_.noise_keys[2 * row_ + 1] = 0;
      if (shape_.adjusts_logits) add_adjustments(ops::SamplingRow(), 0, 0, 0);
    }
    if (shape_.adjusts_logits) arrays_.bias_start[row_] = num_biases_;
  }

 private:
  void add_adjustments(const ops::SamplingRow& row, int64_t num_prompt_tokens, size_t num_tokens,
                       int64_t seq) {
    arrays_.repetition_penalty[row_] = row.repetition_penalty;
    arrays_.presence_penalty[row_] = row.presence_penalty;
    arrays_.frequency_penalty[row_] = row.frequency_penalty;
    arrays_.row_seqs[row_] = static_cast<int32_t>(seq);
    arrays_.num_prompt_tokens[row_] = static_cast<int32_t>(num_prompt_tokens);
    arrays_.history_lens[row_] = static_cast<int32_t>(num_tokens);
    arrays_.bias_start[row_] = num_biases_;
    for (const auto& [id, bias] : row.logit_bias) add_bias(id, bias);
    for (const int32_t id : row.masked_ids) add_bias(id, -std::numeric_limits<float>::infinity());
  }

  void add_bias(int32_t id, float bias) {
    check(num_biases_ < shape_.num_biases, "a step has room for its biases");
    arrays_.biases[num_biases_++] = {id, bias};
  }

  const StepShape& shape_;
  const StepArrays& arrays_;
  int64_t row_ = 0;
  int32_t num_biases_ = 0;
};

// Says of tokens [begin, end) where the GPU finds those that the host does not know.
void fill_token_sources(const StepArrays& arrays, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    arrays.token_sources[i] = row_of_unknown(arrays.token_ids[i]);
    arrays.token_ids[i] = std::max(arrays.token_ids[i], 0);
  }
}

// Queries of a sequence that a captured step is padded to: one, or a few steps of what fills the
// tiles of attention.
int64_t padded_queries(int64_t num_queries) {
  for (const int64_t padded : {1, 4, 8}) {
    if (num_queries <= padded) return padded;
  }
  return ops::kMaxDecodeQueries;
}

// Rows that a captured step with drafts is padded to. As many as the kernel of a whole step may
// take are not padded, because each costs time there.
int64_t padded_drafts(int64_t num_rows) {
  return num_rows <= ops::DecoderStep::kMostVerifiedRows ? num_rows : padded_rows(num_rows);
}

// Says where the token behind the first `num_tokens` of a sequence is sampled.
void add_place(const SequenceState& state, size_t num_tokens, SamplingPlaces& places) {
  SamplingPlace place = SamplingPlace::kGpu;
  if (needs_host_sampling(state, num_tokens)) {
    place = SamplingPlace::kHost;
  } else if (adjusts_logits(state, num_tokens)) {
    const size_t num_output = num_tokens - state.request->prompt_token_ids.size();
    const size_t num_masked = masked_ids(state, num_output).size();
    const auto num_biases = static_cast<int64_t>(state.logit_bias.size() + num_masked);
    const bool has_room = places.num_biases + num_biases <= kMaxStepBiases;
    place = has_room ? SamplingPlace::kGpuAdjusted : SamplingPlace::kHost;
    if (has_room) places.num_biases += num_biases;
  }
  places.rows.push_back(place);
  places.adjusts_logits |= place == SamplingPlace::kGpuAdjusted;
}

}  // namespace

SamplingPlaces sampling_places(std::span<const StepSequence> sequences) {
  SamplingPlaces places;
  for (const StepSequence& sequence : sequences) {
    for (int64_t row = 0; row < sequence.chunk.num_logits_rows(); ++row) {
      add_place(sequence.state, sequence.num_tokens_at(row), places);
    }
  }
  return places;
}

int64_t padded_rows(int64_t num_seqs) {
  if (num_seqs <= 8) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_seqs)));
  }
  if (num_seqs <= 32) return round_up(num_seqs, 8);
  if (num_seqs <= 64) return round_up(num_seqs, 16);
  if (num_seqs <= 256) return round_up(num_seqs, 32);
  return round_up(num_seqs, 64);
}

StepShape step_shape(std::span<const StepSequence> sequences, const SamplingPlaces& places,
                     const StepShape& largest) {
  StepShape shape = {batch_shape(sequences)};
  for (const StepSequence& sequence : sequences) {
    // Prefills of one token are no decodes: a new sequence may have found blocks in the prefix
    // cache that this very step fills, and the decode kernels read all but the newest tokens before
    // the step has written their keys.
    if (sequence.chunk.kind == ChunkKind::kPrefill) break;
    const int64_t num_queries = sequence.chunk.num_tokens;
    const int64_t num_items = ops::num_decode_items(sequence.end());
    const int64_t num_rows = num_items * num_queries;
    if (num_queries > largest.max_decode_queries ||
        shape.num_decode_items + num_items > largest.num_decode_items ||
        shape.num_decode_rows + num_rows > largest.num_decode_rows) {
      break;
    }
    shape.num_decode_items += num_items;
    shape.num_decode_rows += num_rows;
    shape.max_decode_queries = std::max(shape.max_decode_queries, num_queries);
    ++shape.num_decode_seqs;
  }
  shape.adjusts_logits = places.adjusts_logits;
  shape.num_biases = places.num_biases;
  return shape;
}

std::optional<StepShape> captured_shape(const StepShape& exact, const StepShape& largest,
                                        int block_size) {
  const bool all_decode = exact.num_decode_seqs == exact.num_seqs;
  if (!all_decode || exact.num_tokens > kMostCapturedRows) return std::nullopt;
  StepShape shape = exact;
  shape.table_width = std::max<int64_t>(1, kLeastTableTokens / block_size);
  while (shape.table_width < exact.table_width) shape.table_width *= 4;
  shape.table_width = std::min(shape.table_width, largest.table_width);
  shape.num_seqs = shape.num_decode_seqs = std::min(padded_rows(exact.num_seqs), largest.num_seqs);
  shape.max_decode_queries = shape.max_query_len =
      std::min(padded_queries(exact.max_decode_queries), largest.max_decode_queries);
  shape.num_tokens = shape.num_logits =
      shape.max_decode_queries == 1
          ? shape.num_seqs
          : std::min({padded_drafts(exact.num_tokens), largest.num_logits, largest.num_tokens});
  shape.max_context_len = shape.table_width * block_size;
  const int64_t most_items = ops::num_decode_items(shape.max_context_len);
  shape.num_decode_items = std::min(shape.num_seqs * most_items, largest.num_decode_items);
  shape.num_decode_rows = std::min(shape.num_tokens * most_items, largest.num_decode_rows);
  return shape;
}

void fill_step(std::span<const StepSequence> sequences, const SamplingPlaces& places,
               const StepShape& shape, const StepArrays& arrays, int block_size) {
  BatchWriter batch(shape, arrays, block_size);
  SamplingWriter sampling(shape, arrays);
  for (const StepSequence& sequence : sequences) {
    const int64_t seq = batch.num_seqs();
    const int64_t first_token = batch.num_tokens();
    const auto first_row = static_cast<size_t>(batch.num_logits());
    batch.add(sequence);
    fill_token_sources(arrays, first_token, batch.num_tokens());
    for (int64_t row = 0; row < sequence.chunk.num_logits_rows(); ++row) {
      sampling.add(sequence.state, sequence.num_tokens_at(row),
                   places.rows[first_row + static_cast<size_t>(row)], seq);
    }
  }
  const int64_t num_tokens = batch.num_tokens();
  batch.pad();
  fill_token_sources(arrays, num_tokens, shape.num_tokens);
  sampling.pad();
  const auto num_decodes =
      static_cast<size_t>(std::min<int64_t>(shape.num_decode_seqs, batch.num_seqs()));
  *arrays.num_decode_items = static_cast<int32_t>(ops::write_decode_items(
      {arrays.context_lens, num_decodes}, arrays.query_start, arrays.decode_items));
}

}  // namespace quire
