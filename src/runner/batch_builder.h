#pragma once
// Turns the chunks of a step into the arrays of a ForwardBatch, in one pass: in CPU memory for a
// model on the CPU, in pinned memory that is then uploaded for one on a GPU.
//
// Thread safety: plain values and free functions; a writer or builder belongs to one thread.
#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/forward_batch.h"
#include "runner/sequence_table.h"

namespace quire {

// Sizes of a step's arrays. A captured step's arrays are larger than its batch needs.
struct BatchShape {
  int64_t num_tokens = 0;
  int64_t num_seqs = 0;
  int64_t table_width = 0;  // blocks of the longest sequence, or more
  int64_t num_logits = 0;
  int64_t max_query_len = 0;
  int64_t max_context_len = 0;
  bool operator==(const BatchShape&) const = default;
};

// The smallest shape that holds these chunks.
BatchShape batch_shape(std::span<const StepSequence> sequences);

// A step's arrays in CPU or GPU memory, as ForwardBatch describes them.
struct BatchArrays {
  int32_t* token_ids = nullptr;
  int32_t* positions = nullptr;
  int64_t* slot_mapping = nullptr;
  int32_t* query_start = nullptr;
  int32_t* context_lens = nullptr;
  int32_t* block_tables = nullptr;  // entries after a sequence's last block are not written
  int32_t* logits_rows = nullptr;
};

// Hands out arrays from a piece of memory, one after the other.
class ArrayLayout {
 public:
  // Without a base the arrays are null, and used() says how many bytes they would take.
  explicit ArrayLayout(std::byte* base) : base_(base) {}

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

BatchArrays lay_out_batch(ArrayLayout& layout, const BatchShape& shape);

ForwardBatch to_forward_batch(const BatchArrays& arrays, const BatchShape& shape);

// Writes the chunks of a step one after the other.
class BatchWriter {
 public:
  // block_size: tokens in a KV block. `arrays` have the sizes of `shape`.
  BatchWriter(const BatchShape& shape, const BatchArrays& arrays, int block_size);

  // Asks for logits of the last rows of a chunk that samples (num_logits_rows).
  void add(const StepSequence& sequence);
  // Fills up the arrays: with tokens that are stored nowhere, sequences without tokens, and logits
  // of row 0.
  void pad();

  // Of what was added.
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_seqs() const { return num_seqs_; }
  int64_t num_logits() const { return num_logits_; }

 private:
  const BatchShape& shape_;
  const BatchArrays& arrays_;
  const int block_size_;
  int64_t num_tokens_ = 0;
  int64_t num_seqs_ = 0;
  int64_t num_logits_ = 0;
};

// Builds the steps of a rank on the CPU.
class BatchBuilder {
 public:
  explicit BatchBuilder(int block_size) : block_size_(block_size) {}

  // The result points into the builder and holds until the next call. Entries of block tables after
  // a sequence's last block are -1.
  ForwardBatch build(std::span<const StepSequence> sequences);

 private:
  int block_size_;
  std::vector<std::byte> memory_;
};

// A view of a vector as a tensor of one dimension.
template <typename T>
Tensor as_tensor(std::vector<T>& values) {
  return Tensor(values.data(), dtype_of<T>(), {static_cast<int64_t>(values.size())});
}

}  // namespace quire
