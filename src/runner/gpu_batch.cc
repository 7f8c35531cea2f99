#include "runner/gpu_batch.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "ops/cuda/decode_items.h"
#include "ops/sampling_noise.h"
#include "runner/sampler.h"

namespace quire {
namespace {

// Larger steps take long enough to be queued one kernel after the other.
constexpr int64_t kMostCapturedRows = 1024;
// Block tables of captured steps are as wide as this times a power of four.
constexpr int64_t kLeastTableWidth = 64;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The host's values first, then padding up to the step's size.
template <typename T>
void fill_padded(T* to, const Tensor& from, int64_t size, std::type_identity_t<T> padding) {
  std::copy_n(from.data<T>(), from.dim(0), to);
  std::fill(to + from.dim(0), to + size, padding);
}

void fill_tokens(const ScheduledBatch& batch, const ForwardBatch& host,
                 const std::map<SequenceId, int32_t>& last_rows, const StepShape& shape,
                 const StepArrays& arrays) {
  fill_padded(arrays.token_ids, host.token_ids, shape.num_tokens, 0);
  std::fill_n(arrays.token_sources, shape.num_tokens, -1);
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const int32_t last = host.query_start.data<int32_t>()[i + 1] - 1;
    if (arrays.token_ids[last] != kUnknownToken) continue;
    arrays.token_sources[last] = last_rows.at(batch.sequences[i].id);
    arrays.token_ids[last] = 0;
  }
}

void fill_block_tables(const ForwardBatch& host, const StepShape& shape, const StepArrays& arrays) {
  for (int64_t seq = 0; seq < host.num_seqs; ++seq) {
    std::copy_n(host.block_tables.row<int32_t>(seq), host.block_tables.dim(1),
                arrays.block_tables + seq * shape.table_width);
  }
}

void fill_sampling(const ScheduledBatch& batch, const SequenceTable& table, const StepShape& shape,
                   const StepArrays& arrays) {
  std::fill_n(arrays.temperature, shape.num_logits, 0.0f);
  std::fill_n(arrays.top_k, shape.num_logits, 0);
  std::fill_n(arrays.top_p, shape.num_logits, 1.0f);
  std::fill_n(arrays.min_p, shape.num_logits, 0.0f);
  int64_t row = 0;
  for (const ScheduledSequence& scheduled : batch.sequences) {
    if (!scheduled.samples) continue;
    const ops::SamplingRow params = to_sampling_row(table.at(scheduled.id));
    const ops::NoiseKey key = ops::noise_key(params.seed, params.index, params.position);
    arrays.temperature[row] = params.temperature;
    arrays.top_k[row] = params.top_k;
    arrays.top_p[row] = params.top_p;
    arrays.min_p[row] = params.min_p;
    arrays.noise_keys[2 * row] = key.low;
    arrays.noise_keys[2 * row + 1] = key.high;
    ++row;
  }
}

// What the row has of biases, after those of the rows before it. Masked ids have one of -infinity.
int32_t fill_biases(const ops::SamplingRow& params, int32_t num_biases, const StepArrays& arrays) {
  const auto add = [&](int32_t id, float bias) {
    check(num_biases < kMaxStepBiases, "a step has room for its biases");
    arrays.bias_ids[num_biases] = id;
    arrays.biases[num_biases++] = bias;
  };
  for (const auto& [id, bias] : params.logit_bias) add(id, bias);
  for (const int32_t id : params.masked_ids) add(id, -std::numeric_limits<float>::infinity());
  return num_biases;
}

void fill_adjustments(const ScheduledBatch& batch, const SequenceTable& table,
                      const StepShape& shape, const StepArrays& arrays) {
  std::fill_n(arrays.repetition_penalty, shape.num_logits, 1.0f);
  std::fill_n(arrays.presence_penalty, shape.num_logits, 0.0f);
  std::fill_n(arrays.frequency_penalty, shape.num_logits, 0.0f);
  std::fill_n(arrays.row_seqs, shape.num_logits, 0);
  std::fill_n(arrays.num_prompt_tokens, shape.num_logits, 0);
  const std::vector<SamplingPlace> places = sampling_places(batch, table);
  size_t row = 0;
  int32_t num_biases = 0;
  for (size_t seq = 0; seq < batch.sequences.size(); ++seq) {
    if (!batch.sequences[seq].samples) continue;
    arrays.bias_start[row] = num_biases;
    if (places[row] == SamplingPlace::kGpuAdjusted) {
      const SequenceState& state = table.at(batch.sequences[seq].id);
      const ops::SamplingRow params = to_sampling_row(state);
      arrays.repetition_penalty[row] = params.repetition_penalty;
      arrays.presence_penalty[row] = params.presence_penalty;
      arrays.frequency_penalty[row] = params.frequency_penalty;
      arrays.row_seqs[row] = static_cast<int32_t>(seq);
      arrays.num_prompt_tokens[row] = static_cast<int32_t>(state.num_prompt_tokens());
      num_biases = fill_biases(params, num_biases, arrays);
    }
    ++row;
  }
  std::fill(arrays.bias_start + row, arrays.bias_start + shape.num_logits + 1, num_biases);
}

// Items of the leading sequences that decode, as many as there is room for. Returns the number of
// these sequences. Prefills of one token are not among them: a new sequence may have found blocks
// in the prefix cache that this very step fills, and the decode kernels read all but the newest
// token before the step has written its keys.
int64_t fill_decode_items(const ScheduledBatch& batch, const ForwardBatch& host,
                          const StepShape& shape, const StepArrays& arrays) {
  const int32_t* context_lens = host.context_lens.data<int32_t>();
  const auto decodes = [&batch](int64_t seq) {
    return batch.sequences[static_cast<size_t>(seq)].kind == ChunkKind::kDecode;
  };
  int64_t num_items = 0;
  int64_t seq = 0;
  for (; seq < host.num_seqs && decodes(seq); ++seq) {
    num_items += ops::num_decode_items(context_lens[seq]);
    if (num_items > shape.num_decode_items) break;
  }
  *arrays.num_decode_items = static_cast<int32_t>(
      ops::write_decode_items({context_lens, static_cast<size_t>(seq)}, arrays.decode_items));
  return seq;
}

}  // namespace

int64_t padded_rows(int64_t num_seqs) {
  if (num_seqs <= 8) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(num_seqs)));
  }
  if (num_seqs <= 32) return round_up(num_seqs, 8);
  if (num_seqs <= 64) return round_up(num_seqs, 16);
  if (num_seqs <= 256) return round_up(num_seqs, 32);
  return round_up(num_seqs, 64);
}

std::vector<SamplingPlace> sampling_places(const ScheduledBatch& batch,
                                           const SequenceTable& table) {
  std::vector<SamplingPlace> places;
  size_t num_biases = 0;
  for (const ScheduledSequence& scheduled : batch.sequences) {
    if (!scheduled.samples) continue;
    const SequenceState& state = table.at(scheduled.id);
    if (needs_host_sampling(state)) {
      places.push_back(SamplingPlace::kHost);
    } else if (!adjusts_logits(state)) {
      places.push_back(SamplingPlace::kGpu);
    } else {
      const ops::SamplingRow params = to_sampling_row(state);
      const size_t biases = params.logit_bias.size() + params.masked_ids.size();
      const bool has_room = num_biases + biases <= static_cast<size_t>(kMaxStepBiases);
      if (has_room) num_biases += biases;
      places.push_back(has_room ? SamplingPlace::kGpuAdjusted : SamplingPlace::kHost);
    }
  }
  return places;
}

std::optional<StepShape> captured_shape(const ScheduledBatch& batch, const ForwardBatch& host,
                                        const StepShape& largest, int block_size) {
  const auto decodes = [](const ScheduledSequence& s) { return s.kind == ChunkKind::kDecode; };
  if (host.num_seqs > kMostCapturedRows ||
      !std::all_of(batch.sequences.begin(), batch.sequences.end(), decodes)) {
    return std::nullopt;
  }
  int64_t width = kLeastTableWidth;
  while (width < host.block_tables.dim(1)) width *= 4;
  width = std::min(width, largest.table_width);
  const int64_t rows = std::min(padded_rows(host.num_seqs), largest.num_seqs);
  const int64_t num_items =
      std::min(rows * ops::num_decode_items(width * block_size), largest.num_decode_items);
  int64_t needed = 0;
  for (int64_t seq = 0; seq < host.num_seqs; ++seq) {
    needed += ops::num_decode_items(host.context_lens.data<int32_t>()[seq]);
  }
  if (needed > num_items) return std::nullopt;
  return StepShape{rows, rows, width, rows, num_items};
}

int64_t fill_step(const ScheduledBatch& batch, const ForwardBatch& host, const SequenceTable& table,
                  const std::map<SequenceId, int32_t>& last_rows, const StepShape& shape,
                  const StepArrays& arrays) {
  fill_tokens(batch, host, last_rows, shape, arrays);
  fill_padded(arrays.positions, host.positions, shape.num_tokens, 0);
  fill_padded(arrays.slot_mapping, host.slot_mapping, shape.num_tokens, -1);
  fill_padded(arrays.query_start, host.query_start, shape.num_seqs + 1,
              static_cast<int32_t>(host.num_tokens));
  fill_padded(arrays.context_lens, host.context_lens, shape.num_seqs, 0);
  fill_padded(arrays.logits_rows, host.logits_rows, shape.num_logits, 0);
  fill_block_tables(host, shape, arrays);
  fill_sampling(batch, table, shape, arrays);
  if (shape.adjusts_logits) fill_adjustments(batch, table, shape, arrays);
  return fill_decode_items(batch, host, shape, arrays);
}

}  // namespace quire
