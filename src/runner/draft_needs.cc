#include "runner/draft_needs.h"

#include "base/check.h"
#include "models/counted_model.h"
#include "runner/eagle_drafter.h"
#include "runner/gpu_drafter.h"
#include "runner/kv_cache.h"
#include "runner/stage_taps.h"

namespace quire {
namespace {

int64_t step_bytes_of_rank(const RunnerOptions& options, const ModelOptions& part) {
  if (!part.device.is_cpu()) return GpuDrafter::step_bytes(options, part);
  const auto activations = static_cast<int64_t>(
      CountedModel(part).activation_bytes(options.max_tokens, options.max_logits_rows));
  return part.eagle ? activations + EagleDrafter::step_bytes(options) : activations;
}

// Beside keys and values.
int64_t kept_bytes_per_token(const ModelOptions& part) {
  if (!part.device.is_cpu()) return GpuDrafter::bytes_per_token(part);
  return part.eagle ? EagleDrafter::bytes_per_token(part) : 0;
}

}  // namespace

DraftNeeds draft_needs(const RunnerOptions& options) {
  check(options.draft.has_value(), "there is a drafter to plan for");
  DraftNeeds needs;
  const ModelOptions& draft = options.draft->model;
  if (draft.eagle && draft.device.is_cpu()) needs.step_bytes = StageTaps::bytes(options);
  for (int rank = 0; rank < options.model.size; ++rank) {
    ModelOptions part = options.draft->model;
    part.rank = rank;
    part.size = options.model.size;
    CountedModel counted(part);
    for (const MemoryItem& item : counted.model().memory()) {
      needs.weight_bytes += static_cast<int64_t>(item.bytes);
      if (item.bytes > 0) needs.formats.insert(item.formats.begin(), item.formats.end());
    }
    needs.step_bytes += step_bytes_of_rank(options, part);
    const KvCacheShape shape = counted.model().kv_cache_shape();
    needs.num_layers = shape.num_layers;
    needs.bytes_per_block +=
        KvCache::bytes_per_block(shape, options.draft->kv_cache_dtype, options.block_size) +
        options.block_size * kept_bytes_per_token(part);
  }
  return needs;
}

}  // namespace quire
