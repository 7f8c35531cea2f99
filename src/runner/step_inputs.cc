#include "runner/step_inputs.h"

#include "base/check.h"

namespace quire {

namespace {

// For any mix of adapters in `num_rows` rows, which are in at most num_items items.
LoraRowArrays lay_out_lora_rows(ArrayLayout& layout, int64_t num_rows, int64_t num_items) {
  if (num_items == 0) return {};
  LoraRowArrays arrays;
  arrays.items = layout.take<ops::LoraItem>(num_items);
  arrays.num_items = layout.take<int32_t>(1);
  arrays.rows = layout.take<int32_t>(num_rows);
  return arrays;
}

LoraOrderArrays lay_out_lora_order(ArrayLayout& layout, int64_t num_rows) {
  LoraOrderArrays arrays;
  arrays.rows = layout.take<int32_t>(num_rows);
  arrays.wide_rows = layout.take<int64_t>(num_rows);
  return arrays;
}

}  // namespace

StepArrays lay_out_step(ArrayLayout& layout, const StepShape& shape) {
  StepArrays arrays;
  static_cast<BatchArrays&>(arrays) = lay_out_batch(layout, shape);
  arrays.token_sources = layout.take<int32_t>(shape.num_tokens);
  arrays.decode_items = layout.take<ops::DecodeItem>(shape.num_decode_items);
  arrays.num_decode_items = layout.take<int32_t>(1);
  arrays.temperature = layout.take<float>(shape.num_logits);
  arrays.top_k = layout.take<int32_t>(shape.num_logits);
  arrays.top_p = layout.take<float>(shape.num_logits);
  arrays.min_p = layout.take<float>(shape.num_logits);
  arrays.noise_keys = layout.take<uint32_t>(2 * shape.num_logits);
  arrays.loras = lay_out_lora_rows(layout, shape.num_tokens, shape.num_lora_items);
  arrays.lora_logits = lay_out_lora_rows(layout, shape.num_logits, shape.num_lora_logits_items);
  if (shape.orders_lora_rows) {
    arrays.lora_order = lay_out_lora_order(layout, shape.num_tokens);
    arrays.lora_logits_order = lay_out_lora_order(layout, shape.num_logits);
  }
  if (!shape.adjusts_logits) return arrays;
  arrays.repetition_penalty = layout.take<float>(shape.num_logits);
  arrays.presence_penalty = layout.take<float>(shape.num_logits);
  arrays.frequency_penalty = layout.take<float>(shape.num_logits);
  arrays.row_seqs = layout.take<int32_t>(shape.num_logits);
  arrays.num_prompt_tokens = layout.take<int32_t>(shape.num_logits);
  arrays.history_lens = layout.take<int32_t>(shape.num_logits);
  arrays.bias_start = layout.take<int32_t>(shape.num_logits + 1);
  arrays.biases = layout.take<ops::TokenBias>(shape.num_biases);
  return arrays;
}

size_t StepInputs::bytes(const StepShape& shape) {
  ArrayLayout layout(nullptr);
  lay_out_step(layout, shape);
  return layout.used();
}

StepInputs::StepInputs(DeviceLibrary& library, const Device& device, const StepShape& largest,
                       size_t num_arrays)
    : device_(bytes(largest), device) {
  for (size_t i = 0; i < num_arrays; ++i) ring_.push_back(library.allocate_pinned(bytes(largest)));
}

StepArrays StepInputs::next(const StepShape& shape) {
  check(bytes(shape) <= device_.size(), "a step's arrays fit where the plan put them");
  current_ = (current_ + 1) % ring_.size();
  shape_ = shape;
  ArrayLayout layout(ring_[current_]->data());
  return lay_out_step(layout, shape);
}

StepArrays StepInputs::upload(DeviceStream& stream) {
  ArrayLayout layout(device_.data());
  const StepArrays arrays = lay_out_step(layout, shape_);
  stream.copy_to_device(device_.data(), ring_[current_]->data(), layout.used());
  return arrays;
}

ForwardBatch gpu_forward_batch(const StepArrays& arrays, const StepShape& shape) {
  ForwardBatch batch = to_forward_batch(arrays, shape);
  batch.num_decode_seqs = shape.num_decode_seqs;
  batch.max_decode_queries = shape.max_decode_queries;
  batch.num_decode_rows = shape.num_decode_rows;
  batch.decode_items = Tensor(arrays.decode_items, DType::kInt32, {shape.num_decode_items, 4});
  batch.num_decode_items = Tensor(arrays.num_decode_items, DType::kInt32, {1});
  return batch;
}

}  // namespace quire
