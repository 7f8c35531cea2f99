#include "runner/batch_builder.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

BatchShape batch_shape(std::span<const StepSequence> sequences) {
  BatchShape shape;
  shape.num_seqs = static_cast<int64_t>(sequences.size());
  shape.table_width = 1;
  for (const StepSequence& sequence : sequences) {
    const ScheduledSequence& chunk = sequence.chunk;
    const auto num_blocks = static_cast<int64_t>(sequence.state.block_table.size());
    shape.num_tokens += chunk.num_tokens;
    shape.table_width = std::max(shape.table_width, num_blocks);
    shape.num_logits += chunk.num_logits_rows();
    shape.max_query_len = std::max(shape.max_query_len, chunk.num_tokens);
    shape.max_context_len = std::max(shape.max_context_len, sequence.end());
  }
  return shape;
}

BatchArrays lay_out_batch(ArrayLayout& layout, const BatchShape& shape) {
  BatchArrays arrays;
  arrays.token_ids = layout.take<int32_t>(shape.num_tokens);
  arrays.positions = layout.take<int32_t>(shape.num_tokens);
  arrays.slot_mapping = layout.take<int64_t>(shape.num_tokens);
  arrays.query_start = layout.take<int32_t>(shape.num_seqs + 1);
  arrays.context_lens = layout.take<int32_t>(shape.num_seqs);
  arrays.block_tables = layout.take<int32_t>(shape.num_seqs * shape.table_width);
  arrays.logits_rows = layout.take<int32_t>(shape.num_logits);
  return arrays;
}

ForwardBatch to_forward_batch(const BatchArrays& arrays, const BatchShape& shape) {
  ForwardBatch batch;
  batch.num_tokens = shape.num_tokens;
  batch.num_seqs = shape.num_seqs;
  batch.max_query_len = shape.max_query_len;
  batch.max_context_len = shape.max_context_len;
  batch.token_ids = Tensor(arrays.token_ids, DType::kInt32, {shape.num_tokens});
  batch.positions = Tensor(arrays.positions, DType::kInt32, {shape.num_tokens});
  batch.slot_mapping = Tensor(arrays.slot_mapping, DType::kInt64, {shape.num_tokens});
  batch.query_start = Tensor(arrays.query_start, DType::kInt32, {shape.num_seqs + 1});
  batch.context_lens = Tensor(arrays.context_lens, DType::kInt32, {shape.num_seqs});
  batch.block_tables =
      Tensor(arrays.block_tables, DType::kInt32, {shape.num_seqs, shape.table_width});
  batch.logits_rows = Tensor(arrays.logits_rows, DType::kInt32, {shape.num_logits});
  return batch;
}

BatchWriter::BatchWriter(const BatchShape& shape, const BatchArrays& arrays, int block_size)
    : shape_(shape), arrays_(arrays), block_size_(block_size) {
  arrays_.query_start[0] = 0;
}

void BatchWriter::add(const StepSequence& sequence) {
  const SequenceState& state = sequence.state;
  const TokenView tokens = state.tokens();
  const int64_t end = sequence.end();
  check(end <= static_cast<int64_t>(tokens.size()), "a token is scheduled before it is known");
  check(end <= static_cast<int64_t>(state.block_table.size()) * block_size_,
        "a token is scheduled without a block to hold it");
  for (int64_t position = sequence.begin; position < end; ++position) {
    const int64_t block = state.block_table[static_cast<size_t>(position / block_size_)];
    const int64_t token = num_tokens_++;
    arrays_.token_ids[token] = tokens[static_cast<size_t>(position)];
    arrays_.positions[token] = static_cast<int32_t>(position);
    arrays_.slot_mapping[token] = block * block_size_ + position % block_size_;
  }
  std::ranges::copy(state.block_table, arrays_.block_tables + num_seqs_ * shape_.table_width);
  arrays_.context_lens[num_seqs_] = static_cast<int32_t>(end);
  arrays_.query_start[++num_seqs_] = static_cast<int32_t>(num_tokens_);
  for (int64_t left = sequence.chunk.num_logits_rows(); left > 0; --left) {
    arrays_.logits_rows[num_logits_++] = static_cast<int32_t>(num_tokens_ - left);
  }
}

void BatchWriter::pad() {
  const auto num_tokens = static_cast<int32_t>(num_tokens_);
  std::fill(arrays_.token_ids + num_tokens_, arrays_.token_ids + shape_.num_tokens, 0);
  std::fill(arrays_.positions + num_tokens_, arrays_.positions + shape_.num_tokens, 0);
  std::fill(arrays_.slot_mapping + num_tokens_, arrays_.slot_mapping + shape_.num_tokens, -1);
  std::fill(arrays_.query_start + num_seqs_ + 1, arrays_.query_start + shape_.num_seqs + 1,
            num_tokens);
  std::fill(arrays_.context_lens + num_seqs_, arrays_.context_lens + shape_.num_seqs, 0);
  std::fill(arrays_.logits_rows + num_logits_, arrays_.logits_rows + shape_.num_logits, 0);
}

ForwardBatch BatchBuilder::build(std::span<const StepSequence> sequences) {
  const BatchShape shape = batch_shape(sequences);
  ArrayLayout sizes(nullptr);
  lay_out_batch(sizes, shape);
  memory_.resize(sizes.used());
  ArrayLayout layout(memory_.data());
  const BatchArrays arrays = lay_out_batch(layout, shape);
  std::fill_n(arrays.block_tables, shape.num_seqs * shape.table_width, -1);
  BatchWriter writer(shape, arrays, block_size_);
  for (const StepSequence& sequence : sequences) writer.add(sequence);
  return to_forward_batch(arrays, shape);
}

}  // namespace quire
