#include "runner/memory_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "core/kv_cache_view.h"
#include "models/counted_model.h"
#include "ops/cpu/scratch.h"
#include "quire/engine_limits.h"
#include "quire/error.h"
#include "runner/draft_needs.h"
#include "runner/gpu_draft_inputs.h"
#include "runner/gpu_lora_slots.h"
#include "runner/gpu_sizes.h"
#include "runner/kv_cache.h"
#include "runner/lora_slots.h"
#include "runner/model_support.h"
#include "runner/plan_text.h"

namespace quire {
namespace {

// On the CPU, whose runner computes the logits of a step with more rows in several rounds.
constexpr int64_t kLogitsRowsPerRound = 64;

// What each rank holds of the model, stage by stage.
std::vector<ModelOptions> parts_of_ranks(const PlanRequest& request) {
  std::vector<ModelOptions> parts;
  for (int stage = 0; stage < request.num_stages; ++stage) {
    for (int rank = 0; rank < request.model.size; ++rank) {
      parts.push_back(stage_of_model(request.model, stage));
      parts.back().rank = rank;
    }
  }
  return parts;
}

// What a plan of the draft model alone would be made from.
PlanRequest draft_request(const PlanRequest& request) {
  PlanRequest alone = request;
  alone.model = request.draft->model;
  alone.kv_cache_dtype = request.draft->kv_cache_dtype;
  alone.max_loras = 0;
  alone.draft.reset();
  return alone;
}

// Sizes as floating point, each a lower bound: the exact sums below are integers, which a config of
// absurd sizes would overflow.
void check_magnitude(const PlanRequest& request) {
  const ModelConfig& config = request.model.config;
  const ModelCost cost = cost_of(request.model, request.kv_cache_dtype);
  const double heads = static_cast<double>(config.num_attention_heads * config.head_dim);
  const double width = static_cast<double>(config.hidden_size + config.intermediate_size) + heads;
  const double activations = static_cast<double>(max_step_tokens(request)) * width * sizeof(float);
  const double cache = cost.kv_bytes_per_token * static_cast<double>(request.model.max_model_len);
  const double needed = cost.weight_bytes + std::max(activations, cache);
  constexpr double kFarTooMuch = 1e17;
  if (cost.weight_bytes > static_cast<double>(request.available_bytes) || needed > kFarTooMuch) {
    throw Error(fmt::format(
        "The weights of this model alone take at least {:.2f} GiB, and a step and one full "
        "sequence {:.2f} GiB more, but {}. {}, or run it elsewhere.",
        cost.weight_bytes / (1 << 30), std::max(activations, cache) / (1 << 30),
        available_memory_of(request), more_memory_advice(request)));
  }
}

int64_t blocks_per_full_sequence(const PlanRequest& request) {
  return ceil_div(request.model.max_model_len, request.block_size);
}

// What the layers of a stage take, over its ranks, and on the first the drafter.
struct StageNeeds {
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  int64_t weight_bytes = 0;
  int64_t other_bytes = 0;  // activations and adapters
  int64_t bytes_per_block = 0;
};

// What the model's layers take, over all ranks.
struct ModelNeeds {
  std::vector<StageNeeds> stages;
  std::vector<MemoryItem> memory;
  int64_t activation_bytes = 0;
  int64_t lora_bytes = 0;
  int64_t bytes_per_block = 0;
  KvCacheShape kv_cache;  // of all layers, with the heads of a rank
};

int64_t bytes_per_block(const PlanRequest& request, const KvCacheShape& shape) {
  const int64_t bytes = KvCache::bytes_per_block(shape, request.kv_cache_dtype, request.block_size);
  if (request.on_cpu()) return bytes;
  // The ids of its tokens (CudaResolveTokens).
  return bytes + request.block_size * int64_t{sizeof(int32_t)};
}

// Of one rank.
size_t lora_bytes(const PlanRequest& request, const Model& model) {
  if (!request.on_cpu()) return GpuLoraSlots::bytes(model, runner_options(request, 0));
  return LoraSlots::bytes(model, request.max_loras, request.max_lora_rank, request.model.dtype);
}

ModelNeeds needs_of(const PlanRequest& request) {
  ModelNeeds needs;
  for (const ModelOptions& part : parts_of_ranks(request)) {
    CountedModel model(part);
    if (part.rank == 0) needs.stages.emplace_back();
    StageNeeds& stage = needs.stages.back();
    stage.weight_bytes += static_cast<int64_t>(model.weight_bytes());
    const std::vector<MemoryItem> items = model.model().memory();
    if (needs.memory.empty()) {
      needs.memory = items;
    } else {
      for (size_t i = 0; i < items.size(); ++i) {
        needs.memory[i].bytes += items[i].bytes;
        needs.memory[i].formats.insert(items[i].formats.begin(), items[i].formats.end());
      }
    }
    const auto activations = static_cast<int64_t>(
        model.activation_bytes(max_step_tokens(request), max_logits_rows(request)));
    const auto loras = request.max_loras == 0
                           ? int64_t{0}
                           : static_cast<int64_t>(lora_bytes(request, model.model()));
    needs.activation_bytes += activations;
    needs.lora_bytes += loras;
    stage.other_bytes += activations + loras;
    const KvCacheShape shape = model.model().kv_cache_shape();
    if (part.rank == 0) {
      const int64_t num_layers = needs.kv_cache.num_layers + shape.num_layers;
      needs.kv_cache = {num_layers, shape.num_kv_heads, shape.head_dim};
    }
    needs.bytes_per_block += bytes_per_block(request, shape);
    stage.first_layer = part.first_layer;
    stage.num_layers = shape.num_layers;
    stage.bytes_per_block += bytes_per_block(request, shape);
  }
  return needs;
}

DraftNeeds needs_of_draft(const PlanRequest& request) {
  try {
    check_magnitude(draft_request(request));
    const RunnerOptions options = runner_options(request, 0);
    DraftNeeds needs = draft_needs(options);
    if (request.kernels != nullptr) {
      needs.step_bytes += gpu_draft_sizes(*request.kernels, options).total() * request.model.size;
    }
    return needs;
  } catch (const Error& error) {
    throw Error(fmt::format("--speculative-config: the draft model {}: {}",
                            request.draft->folder.string(), error.what()));
  }
}

void add_to_first_stage(const DraftNeeds& draft, ModelNeeds& needs) {
  StageNeeds& first = needs.stages.front();
  first.weight_bytes += draft.weight_bytes;
  first.other_bytes += draft.step_bytes;
  first.bytes_per_block += draft.bytes_per_block;
  needs.bytes_per_block += draft.bytes_per_block;
}

void add_draft_buffers(const DraftNeeds& draft, const std::string& ranks, MemoryPlan& plan) {
  plan.buffers.push_back({"draft model", draft.weight_bytes,
                          fmt::format("all weights, {}{}", fmt::join(draft.formats, ", "), ranks)});
  plan.buffers.push_back(
      {"draft activations", draft.step_bytes,
       fmt::format("of the same steps, and what else a drafter needs{}", ranks)});
}

// What the ops of one rank use for themselves.
int64_t scratch_bytes(const PlanRequest& request) {
  if (request.kernels != nullptr) {
    return gpu_sizes(*request.kernels, runner_options(request, 0)).total();
  }
  if (request.draft) {
    PlanRequest without = request;
    without.draft.reset();
    return std::max(scratch_bytes(without), scratch_bytes(draft_request(request)));
  }
  const ModelConfig& config = request.model.config;
  ops::ScratchNeeds needs;
  needs.max_num_tokens = max_step_tokens(request);
  // Of a head, whose widest inputs are what it sees of the model.
  const auto& eagle = request.model.eagle;
  const int64_t states = eagle ? std::max(std::ssize(eagle->aux_layers) * eagle->target_hidden_size,
                                          2 * config.hidden_size)
                               : 0;
  needs.max_in_features = std::max({states, config.hidden_size, config.intermediate_size,
                                    config.num_attention_heads * config.head_dim});
  needs.max_model_len = request.model.max_model_len;
  needs.heads_per_kv_head =
      static_cast<int>(config.num_attention_heads / config.num_key_value_heads);
  needs.head_dim = static_cast<int>(config.head_dim);
  needs.num_threads = request.threads_per_rank;
  return static_cast<int64_t>(ops::max_scratch_bytes(needs));
}

std::string describe_scratch(const PlanRequest& request) {
  if (!request.on_cpu()) {
    return request.num_stages == 1 ? "partial results of attention and sampling, inputs"
                                   : "partial results of attention and sampling, inputs, and what "
                                     "stages hand to each other";
  }
  return fmt::format("packed inputs and attention tiles of {} threads",
                     request.threads_per_rank * request.num_ranks());
}

// Hidden states and residuals on their way between stages, over all ranks: at most one pair for
// each step in flight (EngineCore::max_steps_in_flight), and memory of two pairs that each stage
// keeps for the next; no more than all stages have for all steps. On GPUs GpuSizes::stage has them.
int64_t message_bytes(const PlanRequest& request) {
  if (request.num_stages == 1 || !request.on_cpu()) return 0;
  const int64_t floats = 2 * max_step_tokens(request) * request.model.config.hidden_size;
  const int64_t num_steps = request.num_stages + 1;
  const int64_t num_ways = request.num_stages - 1;
  const int64_t num_pairs = std::min(num_steps * num_ways, num_steps + 2 * num_ways);
  return num_pairs * request.model.size * floats * int64_t{sizeof(float)};
}

int64_t choose_num_blocks(const PlanRequest& request, int64_t other_bytes, int64_t block_bytes) {
  const int64_t needed = blocks_per_full_sequence(request);
  if (request.num_blocks_override) {
    const int64_t blocks = *request.num_blocks_override;
    if (blocks < needed) {
      throw Error(fmt::format(
          "--num-gpu-blocks-override is {}, but one sequence of {} tokens needs {} blocks of {} "
          "tokens. {}, or raise the number of blocks.",
          blocks, request.model.max_model_len, needed, request.block_size,
          shorter_length_advice(request, blocks)));
    }
    if (blocks > kMaxNumBlocks) {
      throw Error(fmt::format("--num-gpu-blocks-override is {}; expected at most {}.", blocks,
                              kMaxNumBlocks));
    }
    return blocks;
  }
  const bool given = request.kv_cache_memory_bytes.has_value();
  const int64_t left = request.available_bytes - other_bytes;
  // The rest of a CPU's memory is for the page cache and other programs; a GPU's is for this.
  const int64_t planned = request.on_cpu() ? std::min(request.available_bytes / 2, left) : left;
  const int64_t budget = given ? *request.kv_cache_memory_bytes : std::max<int64_t>(0, planned);
  const int64_t blocks = budget / block_bytes;
  if (blocks < needed) {
    throw Error(fmt::format(
        "One sequence of {} tokens needs {} of KV cache, but {} {}. {}, or {}.{}",
        request.model.max_model_len, size_text(needed * block_bytes), size_text(budget),
        given ? "was given with --kv-cache-memory-bytes"
              : fmt::format("is what is planned for it ({}; weights and activations take {})",
                            available_memory_of(request), size_text(other_bytes)),
        shorter_length_advice(request, blocks), larger_cache_advice(request),
        fewer_loras_advice(request)));
  }
  // More than all sequences at full length is of no use.
  const int64_t most = needed * request.max_num_seqs;
  return std::min(given ? blocks : std::min(blocks, most), kMaxNumBlocks);
}

// Each stage has GPUs of its own: the one with room for the fewest blocks decides.
int64_t choose_num_blocks_of_gpus(const PlanRequest& request, const ModelNeeds& needs,
                                  int64_t shared_bytes) {
  PlanRequest part = request;
  part.available_bytes = request.available_bytes / request.num_stages;
  part.num_stages = 1;
  int64_t num_blocks = std::numeric_limits<int64_t>::max();
  for (const StageNeeds& stage : needs.stages) {
    const int64_t other =
        stage.weight_bytes + stage.other_bytes + shared_bytes / request.num_stages;
    if (request.kv_cache_memory_bytes) {
      part.kv_cache_memory_bytes =
          *request.kv_cache_memory_bytes / needs.bytes_per_block * stage.bytes_per_block;
    }
    const std::string layers = fmt::format("The stage of layers {} to {}", stage.first_layer,
                                           stage.first_layer + stage.num_layers - 1);
    int64_t chosen = 0;
    try {
      chosen = choose_num_blocks(part, other, stage.bytes_per_block);
    } catch (const Error& error) {
      throw Error(
          fmt::format("{}: {} --pipeline-layers cuts the layers otherwise.", layers, error.what()));
    }
    if (other > part.available_bytes ||
        chosen > (part.available_bytes - other) / stage.bytes_per_block) {
      throw Error(
          fmt::format("{} does not fit: {}. {}, or cut the layers otherwise with "
                      "--pipeline-layers.",
                      layers, available_memory_of(part), more_memory_advice(part)));
    }
    num_blocks = std::min(num_blocks, chosen);
  }
  return num_blocks;
}

std::vector<PlannedStage> planned_stages(const ModelNeeds& needs, int64_t num_blocks) {
  std::vector<PlannedStage> stages;
  if (needs.stages.size() == 1) return stages;
  for (const StageNeeds& stage : needs.stages) {
    stages.push_back({stage.first_layer, stage.num_layers, stage.weight_bytes,
                      num_blocks * stage.bytes_per_block});
  }
  return stages;
}

}  // namespace

int64_t max_step_tokens(const PlanRequest& request) {
  if (request.max_num_batched_tokens / request.max_num_seqs >= request.model.max_model_len) {
    return request.max_num_seqs * request.model.max_model_len;
  }
  return request.max_num_batched_tokens;
}

RunnerOptions runner_options(const PlanRequest& request, int64_t num_blocks) {
  RunnerOptions options;
  options.model = request.model;
  options.kv_cache_dtype = request.kv_cache_dtype;
  options.block_size = request.block_size;
  options.num_blocks = num_blocks;
  options.max_tokens = max_step_tokens(request);
  options.max_num_seqs = std::min(request.max_num_seqs, options.max_tokens);
  options.max_logits_rows = max_logits_rows(request);
  options.max_draft_tokens = request.max_draft_tokens;
  options.max_drafts = request.max_drafts;
  if (request.on_cpu()) options.scratch_bytes = scratch_bytes(request);
  options.max_loras = request.max_loras;
  options.max_lora_rank = request.max_lora_rank;
  options.lora_copy_bytes = request.lora_copy_bytes;
  options.draft = request.draft;
  return options;
}

int64_t max_logits_rows(const PlanRequest& request) {
  if (!request.on_cpu()) {
    return std::min(request.max_num_seqs + request.max_drafts, max_step_tokens(request));
  }
  return std::min({kLogitsRowsPerRound, request.max_num_seqs, max_step_tokens(request)});
}

MemoryPlan make_memory_plan(const PlanRequest& request) {
  check_magnitude(request);
  MemoryPlan plan;
  plan.architecture = request.model.config.architecture;
  plan.device = request.on_cpu() ? "cpu" : "cuda";
  plan.dtype = name_of(request.model.dtype);
  plan.tensor_parallel_size = request.model.size;
  plan.pipeline_parallel_size = request.num_stages;
  plan.available_bytes = request.available_bytes;
  plan.block_size = request.block_size;
  plan.max_model_len = request.model.max_model_len;
  plan.max_num_seqs = request.max_num_seqs;
  plan.max_num_batched_tokens = request.max_num_batched_tokens;

  const std::string ranks = describe_ranks(request);
  ModelNeeds needs = needs_of(request);
  DraftNeeds draft;
  if (request.draft) draft = needs_of_draft(request);
  add_to_first_stage(draft, needs);
  for (const MemoryItem& item : needs.memory) {
    const bool tied = item.bytes == 0;
    plan.buffers.push_back({item.name, static_cast<int64_t>(item.bytes),
                            tied ? "shared with the embedding"
                                 : fmt::format("{}{}", fmt::join(item.formats, ", "), ranks)});
  }
  plan.buffers.push_back({"activations", needs.activation_bytes,
                          fmt::format("{} tokens a step, {} rows of logits at a time{}",
                                      max_step_tokens(request), max_logits_rows(request), ranks)});
  if (request.draft) add_draft_buffers(draft, ranks, plan);
  plan.buffers.push_back(
      {"scratch", scratch_bytes(request) * request.num_ranks(), describe_scratch(request) + ranks});
  if (request.max_loras > 0) {
    plan.buffers.push_back(
        {"adapters", needs.lora_bytes,
         fmt::format("{} slot{} of rank {}, {}{}{}", request.max_loras,
                     request.max_loras == 1 ? "" : "s", request.max_lora_rank,
                     name_of(request.model.dtype), describe_copies(request), ranks)});
  }
  if (const int64_t bytes = message_bytes(request); bytes > 0) {
    plan.buffers.push_back(
        {"messages", bytes, "hidden states and residuals on their way between stages" + ranks});
  }
  if (request.overhead_bytes > 0) {
    plan.buffers.push_back(
        {"CUDA", request.overhead_bytes * request.num_ranks(),
         "kernels and their scratch, cuBLAS, graphs, messages between GPUs" + ranks});
  }
  int64_t other = 0;
  for (const PlannedBuffer& buffer : plan.buffers) other += buffer.bytes;
  if (other > request.available_bytes) {
    throw Error(fmt::format(
        "The weights and activations of this model{} take {}, but {}. {}, or lower "
        "--max-num-batched-tokens or --max-num-seqs.{}",
        request.draft ? " and its draft model" : "", size_text(other), available_memory_of(request),
        more_memory_advice(request), fewer_loras_advice(request)));
  }

  plan.bytes_per_block = needs.bytes_per_block;
  const bool have_own_memory = !request.on_cpu() && request.num_stages > 1;
  int64_t of_stages = 0;
  for (const StageNeeds& stage : needs.stages) of_stages += stage.weight_bytes + stage.other_bytes;
  plan.num_blocks = have_own_memory ? choose_num_blocks_of_gpus(request, needs, other - of_stages)
                                    : choose_num_blocks(request, other, plan.bytes_per_block);
  plan.num_cache_tokens = plan.num_blocks * request.block_size;
  plan.max_full_length_seqs = plan.num_blocks / blocks_per_full_sequence(request);
  const KvCacheShape& shape = needs.kv_cache;
  // Saturated: 2^31 blocks of any size must not overflow.
  const int64_t kv_bytes =
      plan.bytes_per_block > std::numeric_limits<int64_t>::max() / 4 / plan.num_blocks
          ? std::numeric_limits<int64_t>::max() / 4
          : plan.num_blocks * plan.bytes_per_block;
  plan.buffers.push_back(
      {"kv cache", kv_bytes,
       fmt::format("{} layers x 2 x {} heads x {} x {} blocks of {} tokens, {}{}{}{}",
                   shape.num_layers, shape.num_kv_heads, shape.head_dim, plan.num_blocks,
                   request.block_size, name_of(request.kv_cache_dtype),
                   request.draft ? fmt::format(", and {} layer{} of the draft model",
                                               draft.num_layers, draft.num_layers == 1 ? "" : "s")
                                 : std::string(),
                   request.on_cpu() ? "" : ", and the tokens' ids", ranks)});
  plan.total_bytes = other + kv_bytes;
  if (kv_bytes > request.available_bytes - other) {
    throw Error(fmt::format(
        "The model would take {} ({} of it KV cache), but {}. Lower "
        "--kv-cache-memory-bytes or --num-gpu-blocks-override.",
        size_text(plan.total_bytes), size_text(kv_bytes), available_memory_of(request)));
  }
  plan.stages = planned_stages(needs, plan.num_blocks);
  return plan;
}

std::vector<size_t> gpu_rank_bytes(const PlanRequest& request, const MemoryPlan& plan) {
  const int64_t size = request.model.size;
  if (request.num_stages == 1) {
    return {static_cast<size_t>(plan.total_bytes / size - request.overhead_bytes)};
  }
  ModelNeeds needs = needs_of(request);
  if (request.draft) add_to_first_stage(needs_of_draft(request), needs);
  std::vector<size_t> bytes;
  for (const StageNeeds& stage : needs.stages) {
    const int64_t of_stage =
        stage.weight_bytes + stage.other_bytes + plan.num_blocks * stage.bytes_per_block;
    bytes.push_back(static_cast<size_t>(of_stage / size + scratch_bytes(request)));
  }
  return bytes;
}

}  // namespace quire
