#include "models/counted_model.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "core/buffer.h"
#include "dist/communicator.h"
#include "layers/placement.h"
#include "models/families.h"

namespace quire {
namespace {

ModelOptions counted_by(CountingMemory& memory, ModelOptions options) {
  options.device.memory = &memory;
  return options;
}

template <typename... Extents>
Tensor unreadable(DType dtype, Extents... shape) {
  return {CountingMemory::nowhere(), dtype, {shape...}};
}

// One sequence of `num_tokens` tokens; logits are wanted for `num_logits` of them.
ForwardBatch batch_of(int64_t num_tokens, int64_t num_logits) {
  ForwardBatch batch;
  batch.num_tokens = num_tokens;
  batch.num_seqs = 1;
  batch.max_query_len = num_tokens;
  batch.max_context_len = num_tokens;
  batch.token_ids = unreadable(DType::kInt32, num_tokens);
  batch.positions = unreadable(DType::kInt32, num_tokens);
  batch.slot_mapping = unreadable(DType::kInt64, num_tokens);
  batch.query_start = unreadable(DType::kInt32, int64_t{2});
  batch.context_lens = unreadable(DType::kInt32, int64_t{1});
  batch.block_tables = unreadable(DType::kInt32, int64_t{1}, int64_t{1});
  batch.logits_rows = unreadable(DType::kInt32, num_logits);
  return batch;
}

std::vector<KvCacheView> caches_of(const KvCacheShape& shape) {
  const KvCacheView view = {.keys = CountingMemory::nowhere(),
                            .values = CountingMemory::nowhere(),
                            .num_blocks = 1,
                            .num_kv_heads = shape.num_kv_heads,
                            .head_dim = shape.head_dim};
  return std::vector<KvCacheView>(static_cast<size_t>(shape.num_layers), view);
}

}  // namespace

CountedModel::CountedModel(const ModelOptions& options)
    : options_(counted_by(memory_, options)), model_(create_model(options_)) {}

size_t CountedModel::activation_bytes(int64_t max_tokens, int64_t max_logits) {
  const Placement place = {options_.dtype, {options_.rank, options_.size}, options_.device};
  CountingMemory memory;
  Device device = options_.device;
  device.memory = &memory;
  Arena arena(Buffer(std::numeric_limits<size_t>::max() / 2, device));
  Stream stream(device);
  const std::unique_ptr<Communicator> comm = make_idle_communicator(options_.rank, options_.size);
  const std::vector<KvCacheView> caches = caches_of(model_->kv_cache_shape());
  const ForwardBatch batch = batch_of(max_tokens, max_logits);
  ForwardContext context{stream, place.activation_dtype(), arena, *comm, batch};

  std::optional<IntermediateTensors> previous;
  if (options_.first_layer > 0 || options_.eagle) {
    const auto shape = {max_tokens, options_.config.hidden_size};
    previous = {arena.allocate(context.dtype, shape), arena.allocate(context.dtype, shape)};
  }
  model_->bind_cache(stream, *comm, caches);
  const IntermediateTensors state = model_->forward(context, previous);
  const int64_t num_layers = options_.config.num_hidden_layers;
  const bool is_last = options_.last_layer < 0 || options_.last_layer == num_layers;
  if (is_last) model_->compute_logits(context, state.hidden);
  return arena.peak();
}

}  // namespace quire
