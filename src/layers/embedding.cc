#include "layers/embedding.h"

#include <span>
#include <utility>

#include "base/ceil_div.h"
#include "ops/embedding.h"
#include "ops/linear.h"

namespace quire {
namespace {

// Elements from one row of logits to the next: a GPU's kernels read rows 32 bytes at a time.
int64_t logits_width(int64_t vocab_size, DeviceType device) {
  return device == DeviceType::kCpu ? vocab_size : round_up(vocab_size, 8);
}

}  // namespace

VocabTable::VocabTable(int64_t vocab_size, int64_t hidden_size, const Placement& place,
                       const MatrixFormat& format)
    : VocabTable(vocab_shard(vocab_size, hidden_size, place.at), hidden_size, place, format) {}

VocabTable::VocabTable(VocabShard shard, int64_t hidden_size, const Placement& place,
                       const MatrixFormat& format)
    : vocab_size_(shard.vocab_size),
      first_id_(shard.first_id),
      parts_(shard.parts),
      weight_(place, format, shard.rows, hidden_size, std::move(shard.parts)) {}

void VocabTable::add_parameters(const std::string& name, ParameterMap& parameters) {
  parameters.add(name, weight_);
}

void VocabTable::add_embedding_site(const std::string& name, LoraSites& sites) const {
  sites.add(name, {.layer = this,
                   .n = weight_.weight().k(),
                   .k = vocab_size_,
                   .parts = parts_,
                   .is_embedding = true});
}

void VocabTable::add_output_site(const std::string& name, LoraSites& sites) const {
  sites.add(name, {.layer = this,
                   .n = weight_.weight().n(),
                   .k = weight_.weight().k(),
                   .parts = parts_,
                   .is_output = true});
}

MatrixProduct VocabTable::product(std::string name) const {
  return {.name = std::move(name),
          .n = weight_.weight().n(),
          .k = weight_.weight().k(),
          .format = weight_.weight().format(),
          .stored_as = weight_.stored_as(),
          .is_logits = true};
}

void embed_tokens(ForwardContext& context, const VocabTable& table, const Tensor& out) {
  ops::embedding(context.stream, context.batch.token_ids, table.weight(), table.first_id(), out);
  if (context.gpu_lora != nullptr) {
    context.gpu_lora->look_up_copies(context.stream, &table, context.batch.token_ids, out);
  }
  // All but one rank have zeros for a token.
  context.comm.all_reduce_sum(context.stream, out);
  if (context.lora != nullptr) {
    context.lora->add_to_embedding(context.stream, &table, context.batch.token_ids, out);
  }
  if (context.gpu_lora != nullptr) {
    context.gpu_lora->add_to_embedding(context.stream, &table, context.batch.token_ids, out);
  }
}

namespace {

// The rows' products with the rank's part of the table.
void multiply_table(ForwardContext& context, const VocabTable& table, const Tensor& wanted,
                    const Tensor& out) {
  const ops::LoraSlotLayer* slots =
      context.gpu_lora == nullptr ? nullptr : context.gpu_lora->find_output(&table);
  if (slots != nullptr) context.gpu_lora->shrink_logits(context.stream, *slots, wanted);
  ops::linear(context.stream, wanted, table.weight(), Tensor(), out);
  if (context.gpu_lora != nullptr) {
    context.gpu_lora->multiply_copies_of_logits(context.stream, &table, wanted, out);
  }
  if (slots != nullptr) context.gpu_lora->expand_logits(context.stream, *slots, out);
  if (context.lora == nullptr) return;
  const Tensor& rows = context.batch.logits_rows;
  context.lora->add_to_logits(
      context.stream, &table,
      std::span(rows.data<int32_t>(), static_cast<size_t>(rows.num_elements())), wanted, out);
}

}  // namespace

Tensor compute_vocab_logits(ForwardContext& context, const VocabTable& table,
                            const Tensor& hidden) {
  const int64_t num_logits = context.batch.logits_rows.dim(0);
  const int64_t rows = table.weight().n();
  const int size = context.comm.size();
  const int64_t width = logits_width(rows * size, context.stream.device().type);
  const int64_t num_own =
      context.splits_logits ? RowShare(num_logits, context.comm.rank(), size).size() : num_logits;
  const Tensor padded = context.arena.allocate(DType::kFloat32, {num_own, width});
  const Tensor logits = padded.columns(0, rows * size);
  Arena::Scope scope(context.arena);
  const Tensor wanted = context.arena.allocate(context.dtype, {num_logits, hidden.dim(1)});
  ops::gather_rows(context.stream, hidden, context.batch.logits_rows, wanted);
  if (size == 1) {
    multiply_table(context, table, wanted, logits);
    return logits;
  }
  const int64_t shard_width = logits_width(rows, context.stream.device().type);
  const Tensor shard =
      context.arena.allocate(DType::kFloat32, {num_logits, shard_width}).columns(0, rows);
  multiply_table(context, table, wanted, shard);
  if (context.splits_logits) {
    context.comm.all_to_all_columns(context.stream, shard, logits);
  } else {
    context.comm.all_gather_columns(context.stream, shard, logits);
  }
  return logits.columns(0, table.vocab_size());
}

}  // namespace quire
