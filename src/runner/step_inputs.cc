#include "runner/step_inputs.h"

#include "base/check.h"

namespace quire {
namespace {

// Gives out the arrays of a layout one after the other.
class Layout {
 public:
  // Without a base the arrays are null, and used() says what they take.
  explicit Layout(std::byte* base) : base_(base) {}

  template <typename T>
  T* take(int64_t count) {
    T* array = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += align_up(static_cast<size_t>(count) * sizeof(T));
    return array;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

StepArrays lay_out(Layout& layout, const StepShape& shape) {
  StepArrays arrays = {};
  arrays.token_ids = layout.take<int32_t>(shape.num_tokens);
  arrays.token_sources = layout.take<int32_t>(shape.num_tokens);
  arrays.positions = layout.take<int32_t>(shape.num_tokens);
  arrays.slot_mapping = layout.take<int64_t>(shape.num_tokens);
  arrays.query_start = layout.take<int32_t>(shape.num_seqs + 1);
  arrays.context_lens = layout.take<int32_t>(shape.num_seqs);
  arrays.logits_rows = layout.take<int32_t>(shape.num_logits);
  arrays.decode_items = layout.take<ops::DecodeItem>(shape.num_decode_items);
  arrays.num_decode_items = layout.take<int32_t>(1);
  arrays.temperature = layout.take<float>(shape.num_logits);
  arrays.top_k = layout.take<int32_t>(shape.num_logits);
  arrays.top_p = layout.take<float>(shape.num_logits);
  arrays.min_p = layout.take<float>(shape.num_logits);
  arrays.noise_keys = layout.take<uint32_t>(2 * shape.num_logits);
  arrays.block_tables = layout.take<int32_t>(shape.num_seqs * shape.table_width);
  if (!shape.adjusts_logits) return arrays;
  arrays.repetition_penalty = layout.take<float>(shape.num_logits);
  arrays.presence_penalty = layout.take<float>(shape.num_logits);
  arrays.frequency_penalty = layout.take<float>(shape.num_logits);
  arrays.row_seqs = layout.take<int32_t>(shape.num_logits);
  arrays.num_prompt_tokens = layout.take<int32_t>(shape.num_logits);
  arrays.bias_start = layout.take<int32_t>(shape.num_logits + 1);
  arrays.bias_ids = layout.take<int32_t>(kMaxStepBiases);
  arrays.biases = layout.take<float>(kMaxStepBiases);
  return arrays;
}

}  // namespace

size_t StepInputs::bytes(const StepShape& shape) {
  Layout layout(nullptr);
  lay_out(layout, shape);
  return layout.used();
}

StepInputs::StepInputs(DeviceLibrary& library, const Device& device, const StepShape& largest)
    : device_(bytes(largest), device) {
  for (size_t i = 0; i < kRing; ++i) ring_.push_back(library.allocate_pinned(bytes(largest)));
}

StepArrays StepInputs::next(const StepShape& shape) {
  check(bytes(shape) <= device_.size(), "a step's arrays fit where the plan put them");
  current_ = (current_ + 1) % kRing;
  shape_ = shape;
  Layout layout(ring_[current_]->data());
  return lay_out(layout, shape);
}

StepArrays StepInputs::upload(DeviceStream& stream) {
  Layout layout(device_.data());
  const StepArrays arrays = lay_out(layout, shape_);
  stream.copy_to_device(device_.data(), ring_[current_]->data(), layout.used());
  return arrays;
}

ForwardBatch to_forward_batch(const StepArrays& arrays, const StepShape& shape) {
  ForwardBatch batch;
  batch.num_tokens = shape.num_tokens;
  batch.num_seqs = shape.num_seqs;
  batch.token_ids = Tensor(arrays.token_ids, DType::kInt32, {shape.num_tokens});
  batch.positions = Tensor(arrays.positions, DType::kInt32, {shape.num_tokens});
  batch.slot_mapping = Tensor(arrays.slot_mapping, DType::kInt64, {shape.num_tokens});
  batch.query_start = Tensor(arrays.query_start, DType::kInt32, {shape.num_seqs + 1});
  batch.context_lens = Tensor(arrays.context_lens, DType::kInt32, {shape.num_seqs});
  batch.block_tables =
      Tensor(arrays.block_tables, DType::kInt32, {shape.num_seqs, shape.table_width});
  batch.logits_rows = Tensor(arrays.logits_rows, DType::kInt32, {shape.num_logits});
  batch.decode_items = Tensor(arrays.decode_items, DType::kInt32, {shape.num_decode_items, 4});
  batch.num_decode_items = Tensor(arrays.num_decode_items, DType::kInt32, {1});
  return batch;
}

}  // namespace quire
