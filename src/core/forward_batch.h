#pragma once
// The input of one forward pass: tokens of several sequences side by side, decode tokens and
// prefill chunks alike. Arrays are on the rank's device.
//
// Example: block_size 16; sequence A decodes its token 20 (19 are cached), sequence B prefills its
// first 3 tokens; A holds blocks 7, 4 and B holds block 9:
//   num_tokens 4, num_seqs 2
//   token_ids     [a20, b0, b1, b2]
//   positions     [ 19,  0,  1,  2]
//   slot_mapping  [4*16+3, 9*16, 9*16+1, 9*16+2]     block * block_size + offset; -1: padding
//   query_start   [0, 1, 4]
//   context_lens  [20, 3]        tokens in the cache once this step has written its own
//   block_tables  [[7, 4], [9, -1]]
//   logits_rows   [0, 3]         rows of the hidden state whose logits are wanted
// Thread safety: a plain value.
#include <cstdint>

#include "core/tensor.h"

namespace quire {

struct ForwardBatch {
  int64_t num_tokens = 0;
  int64_t num_seqs = 0;
  int64_t max_query_len = 0;
  int64_t max_context_len = 0;
  Tensor token_ids;     // int32[num_tokens]
  Tensor positions;     // int32[num_tokens]
  Tensor slot_mapping;  // int64[num_tokens]
  Tensor query_start;   // int32[num_seqs + 1]
  Tensor context_lens;  // int32[num_seqs]
  Tensor block_tables;  // int32[num_seqs, max_blocks_per_seq]
  Tensor logits_rows;   // int32[num_logits]

  // Only on a GPU. The first num_decode_seqs sequences have one token each, or up to
  // max_decode_queries; chunks of their contexts, as ops/cuda/kernels.h describes them.
  int64_t num_decode_seqs = 0;
  int64_t max_decode_queries = 1;
  int64_t num_decode_rows = 0;        // of the scratch
  Tensor decode_items;                // int32[most items possible, 4]
  Tensor num_decode_items;            // int32[1]
  void* attention_scratch = nullptr;  // of paged_attention_scratch_bytes()
};

}  // namespace quire
