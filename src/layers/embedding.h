#pragma once
// The token embedding and the output layer, both split over the ranks by vocabulary.
//
// Thread safety: forward is called by the rank's worker.
#include <string>
#include <vector>

#include "layers/forward_context.h"
#include "layers/linear.h"
#include "layers/parameters.h"
#include "layers/placement.h"
#include "layers/sharding.h"

namespace quire {

// A rank's rows of a table [vocab_size, hidden_size]: an embedding, an output layer, or both at
// once (tied).
class VocabTable {
 public:
  VocabTable(int64_t vocab_size, int64_t hidden_size, const Placement& place,
             const MatrixFormat& format = {});

  // Adds the table's tensors as "<name>.<leaf>".
  void add_parameters(const std::string& name, ParameterMap& parameters);

  // Lets adapters add to the table as an embedding, or as an output layer.
  void add_embedding_site(const std::string& name, LoraSites& sites) const;
  void add_output_site(const std::string& name, LoraSites& sites) const;

  // The product of compute_vocab_logits().
  MatrixProduct product(std::string name) const;

  int64_t vocab_size() const { return vocab_size_; }
  int64_t first_id() const { return first_id_; }
  const ops::Weight& weight() const { return weight_.weight(); }

 private:
  VocabTable(VocabShard shard, int64_t hidden_size, const Placement& place,
             const MatrixFormat& format);

  int64_t vocab_size_;
  int64_t first_id_;
  std::vector<ParameterPart> parts_;
  MatrixParameter weight_;
};

// out[t] = the table's row for the batch's token t, on every rank. out [num_tokens, hidden_size].
void embed_tokens(ForwardContext& context, const VocabTable& table, const Tensor& out);

// The output layer: rows batch.logits_rows of hidden [num_tokens, hidden_size] times the table,
// gathered over the ranks: float32[num_logits, vocab_size] in the arena. Every rank gets all rows,
// or its share (RowShare) where the context splits them. Where shards are padded, the result is a
// view without the padding, so its rows are strided.
Tensor compute_vocab_logits(ForwardContext& context, const VocabTable& table, const Tensor& hidden);

}  // namespace quire
