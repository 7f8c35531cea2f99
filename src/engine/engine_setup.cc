#include "engine/engine_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "base/cpu_features.h"
#include "base/cpu_placement.h"
#include "base/thread_pool.h"
#include "cluster/machine_share.h"
#include "core/device_library.h"
#include "engine/device_choice.h"
#include "engine/lora_reader.h"
#include "engine/node_setup.h"
#include "engine/number_types.h"
#include "engine/setting_checks.h"
#include "engine/step_limits.h"
#include "hub/model_path.h"
#include "loader/checkpoint.h"
#include "loader/eagle_config.h"
#include "quire/engine_limits.h"
#include "quire/error.h"
#include "runner/available_memory.h"
#include "runner/gpu_algorithms.h"
#include "runner/gpu_lora_slots.h"
#include "runner/gpu_sizes.h"
#include "runner/memory_plan.h"
#include "runner/model_support.h"
#include "runner/stage_layers.h"
#include "speculative/proposer.h"
#include "speculative/synthetic_acceptance.h"

namespace quire {
namespace {

int64_t choose_max_model_len(const EngineConfig& config, const ModelConfig& model) {
  const int64_t supported = model.max_model_len();
  const int64_t chosen = config.max_model_len.value_or(supported);
  require(chosen <= supported || model.rope.type == RopeType::kDynamicNtk,
          fmt::format("--max-model-len is {}, but this model's config.json supports at most {} "
                      "(only rope type \"dynamic\" may go further).",
                      chosen, supported));
  require(
      chosen >= 2 && chosen <= kMaxModelLen,
      fmt::format("The longest sequence (--max-model-len, else what config.json supports) is {}; "
                  "expected 2 (a prompt token and a generated one) or more, at most {}.",
                  chosen, kMaxModelLen));
  return chosen;
}

// The CPU's best instruction set, or a lesser one for tests and comparisons.
Isa choose_isa() {
  const char* name = std::getenv("QUIRE_CPU_ISA");
  if (name == nullptr || *name == '\0') return best_isa();
  const std::optional<Isa> isa = isa_from_name(name);
  if (isa && supports(*isa)) return *isa;
  std::vector<std::string_view> names;
  for (const Isa supported : supported_isas()) names.push_back(name_of(supported));
  throw Error(
      fmt::format("QUIRE_CPU_ISA is \"{}\"; this CPU supports {}.", name, fmt::join(names, ", ")));
}

void check_eos(const GenerationConfig& generation, const ModelConfig& model,
               const std::filesystem::path& folder) {
  for (int32_t id : generation.eos_token_ids) {
    require(id < model.vocab_size,
            fmt::format("{}: eos_token_id {} is outside the model's vocabulary of {} tokens.",
                        folder.string(), id, model.vocab_size));
  }
}

// Threads for all ranks of this process, which has so many cores.
int choose_threads(const EngineConfig& config, int num_ranks, int num_cores) {
  if (config.threads == 0) return std::max(num_cores, num_ranks);
  const std::string stages =
      config.pipeline_parallel_size == 1
          ? std::string()
          : fmt::format(" with --pipeline-parallel-size {}", config.pipeline_parallel_size);
  require(
      config.threads >= num_ranks,
      fmt::format("--threads is {}, but --tensor-parallel-size {}{} needs a thread for each rank.",
                  config.threads, config.tensor_parallel_size, stages));
  return config.threads;
}

void check_stages(const EngineConfig& config, const ModelConfig& model) {
  const int stages = config.pipeline_parallel_size;
  require(stages <= model.num_hidden_layers,
          fmt::format("--pipeline-parallel-size is {}, but the model has {} layers; expected at "
                      "most as many stages as layers.",
                      stages, model.num_hidden_layers));
  const std::vector<int64_t>& layers = config.pipeline_layers;
  if (layers.empty()) return;
  require(std::ssize(layers) == stages,
          fmt::format("--pipeline-layers has {} number{}, but --pipeline-parallel-size is {}; "
                      "expected one number a stage.",
                      layers.size(), layers.size() == 1 ? "" : "s", stages));
  int64_t sum = 0;
  for (const int64_t count : layers) {
    require(count >= 1 && count <= model.num_hidden_layers,
            fmt::format("--pipeline-layers: a stage has {} layers; expected 1 to {}, the model's "
                        "layers.",
                        count, model.num_hidden_layers));
    sum += count;
  }
  require(sum == model.num_hidden_layers,
          fmt::format("--pipeline-layers is {} together, but the model has {} layers; expected "
                      "numbers that add up to these.",
                      sum, model.num_hidden_layers));
}

// How the layers of the request's model are cut; empty: not at all.
std::vector<int64_t> layers_of_stages(const EngineConfig& config, const PlanRequest& request) {
  if (config.pipeline_parallel_size == 1) return {};
  if (!config.pipeline_layers.empty()) return config.pipeline_layers;
  double draft_bytes = 0;
  if (request.draft) {
    const SpeculativeConfig& speculation = *config.speculative_config;
    // Nobody knows how many drafts will be worth their cost.
    const int num_passes = speculation.adaptive ? ceil_div(speculation.num_speculative_tokens, 2)
                                                : speculation.num_speculative_tokens;
    draft_bytes = bytes_of_drafts(request.draft->model, request.model, num_passes);
  }
  return balanced_stage_layers(request.model, config.pipeline_parallel_size, draft_bytes);
}

// The draft model of this config, for the model of `request`.
DraftModelOptions load_draft_model(const EngineConfig& config, const DeviceChoice& choice,
                                   const PlanRequest& request) {
  const SpeculativeConfig& speculation = *config.speculative_config;
  const ModelConfig& model = request.model.config;
  DraftModelOptions draft;
  draft.folder = resolve_model(speculation.model);
  const ModelConfig found = load_model_config(draft.folder);
  require(found.vocab_size == model.vocab_size,
          fmt::format("its vocabulary has {} tokens, and that of the model {}; expected the same.",
                      found.vocab_size, model.vocab_size));
  require(
      found.max_model_len() >= request.model.max_model_len ||
          found.rope.type == RopeType::kDynamicNtk,
      fmt::format("it supports {} tokens, and --max-model-len is {}; expected a --max-model-len "
                  "of at most that.",
                  found.max_model_len(), request.model.max_model_len));
  EngineConfig alone = config;
  alone.quantization = speculation.quantization;
  draft.model = choose_model(alone, found, choice);
  draft.model.max_model_len = request.model.max_model_len;
  draft.model.size = request.model.size;
  draft.kv_cache_dtype = choose_kv_cache_dtype(config, found, draft.model.dtype, choice.on_gpu());
  draft.model.has_kv_scales = takes_scales(draft.kv_cache_dtype);
  return draft;
}

// Before a GPU's memory is taken, and where a message can say whose weights they are.
void check_head_weights(const DraftModelOptions& head) {
  check_weights_of(head.model, Checkpoint::open(head.folder));
}

// What the head of this config is, for the model that `request` is of.
DraftModelOptions load_head(const EngineConfig& config, const DeviceChoice& choice,
                            const PlanRequest& request) {
  DraftModelOptions draft;
  draft.folder = resolve_model(config.speculative_config->model);
  require(std::filesystem::is_directory(draft.folder), "expected a head's folder, not a file.");
  const ModelConfig& target = request.model.config;
  const EagleKind kind =
      config.speculative_config->method == "eagle" ? EagleKind::kEagle : EagleKind::kEagle3;
  EagleConfig head = config.load_format == LoadFormat::kDummy
                         ? load_dummy_eagle_config(draft.folder, kind, target)
                         : load_eagle_config(draft.folder, kind, target);
  EngineConfig alone = config;
  alone.quantization = config.speculative_config->quantization;
  // It reads the model's hidden states, and may share its tables.
  if (choice.on_gpu()) alone.dtype = name_of(request.model.dtype);
  draft.model = choose_model(alone, head.layers, choice);
  draft.model.eagle = std::move(head);
  draft.model.max_model_len = request.model.max_model_len;
  draft.model.size = request.model.size;
  draft.kv_cache_dtype =
      choose_kv_cache_dtype(config, draft.model.config, draft.model.dtype, choice.on_gpu());
  draft.model.has_kv_scales = takes_scales(draft.kv_cache_dtype);
  if (config.load_format != LoadFormat::kDummy) check_head_weights(draft);
  return draft;
}

DraftModelOptions choose_draft_model(const EngineConfig& config, const DeviceChoice& choice,
                                     const PlanRequest& request) {
  const std::string& name = config.speculative_config->model;
  const int size =
      config.speculative_config->draft_tensor_parallel_size.value_or(config.tensor_parallel_size);
  require(size == config.tensor_parallel_size,
          fmt::format("--speculative-config: draft_tensor_parallel_size is {}; expected {}, as "
                      "--tensor-parallel-size says, or none.",
                      size, config.tensor_parallel_size));
  const bool is_head = drafts_with_head(*config.speculative_config);
  const char* const head_name =
      config.speculative_config->method == "eagle" ? "EAGLE head" : "EAGLE-3 head";
  try {
    DraftModelOptions draft =
        is_head ? load_head(config, choice, request) : load_draft_model(config, choice, request);
    if (choice.on_gpu()) check_gpu_takes(draft.model.config, config.max_num_seqs);
    return draft;
  } catch (const Error& error) {
    throw Error(fmt::format("--speculative-config: the {} {}: {}",
                            is_head ? head_name : "draft model", name, error.what()));
  }
}

void set_gpu_drafts(const EngineConfig& config, PlanRequest& request) {
  request.max_draft_tokens = config.speculative_config
                                 ? config.speculative_config->num_speculative_tokens
                                 : max_forced_drafts_of(config, /*on_gpu=*/true);
  request.max_drafts = max_gpu_drafts_of(config);
}

// Room on a GPU for an adapter's trained copies of matrices.
int64_t choose_lora_copy_bytes(const EngineSetup& setup, const PlanRequest& request) {
  const EngineConfig& config = setup.config;
  if (config.lora.copy_memory_bytes) return *config.lora.copy_memory_bytes;
  if (config.cluster.num_nodes > 1) return 0;  // the others do not know the adapters yet
  const LoraTarget target =
      lora_target(setup.folder, setup.model, config.load_format != LoadFormat::kDummy,
                  config.lora.max_lora_rank);
  int64_t most = 0;
  for (const LoraPath& adapter : config.lora.modules) {
    const std::vector<std::string> copies = trained_copies(adapter.path, target);
    if (copies.empty()) continue;
    most = std::max(most, lora_copy_needs(request.model, request.num_stages, copies).bytes);
  }
  return most;
}

// What the nodes agree on before they plan their memory.
struct SharedMachine {
  cluster::MachineShare share;
  int64_t available_bytes = 0;  // of main memory, over all ranks
  NumaTopology topology;
};

SharedMachine share_machine(cluster::NodeGroup* nodes) {
  NumaTopology topology = numa_topology();
  if (nodes == nullptr) {
    const cluster::MachineShare share = {.num_cores = topology.cpus.num_physical_cores};
    return {.share = share, .available_bytes = available_memory(), .topology = std::move(topology)};
  }
  const auto share = cluster::share_machine(*nodes, cluster::machine_number(), topology.cpus);
  return {.share = share,
          .available_bytes =
              nodes->agree_least(available_memory() / share.num_nodes) * nodes->num_nodes(),
          .topology = std::move(topology)};
}

std::vector<cluster::GpuId> gpus_of(const DeviceChoice& choice, int first, int count) {
  const std::vector<DeviceInfo> devices = choice.library->devices();
  std::vector<cluster::GpuId> gpus;
  for (int i = first; i < first + count; ++i) {
    gpus.push_back(devices[static_cast<size_t>(i)].uuid);
  }
  return gpus;
}

// All nodes use as many blocks as the node with the fewest.
MemoryPlan make_shared_plan(PlanRequest& request, cluster::NodeGroup* nodes) {
  MemoryPlan plan = make_memory_plan(request);
  if (nodes == nullptr) return plan;
  const int64_t num_blocks = nodes->agree_least(plan.num_blocks);
  if (num_blocks == plan.num_blocks) return plan;
  request.num_blocks_override = num_blocks;
  return make_memory_plan(request);
}

void check_all_settings(const EngineConfig& config) {
  check_settings(config);
  check_cluster(config);
}

// `choice`: the device. `joined`: if not null, and there are several nodes, waits for them and
// stores the group there.
EngineSetup set_up_model(const EngineConfig& requested, const DeviceChoice& choice,
                         std::shared_ptr<cluster::NodeGroup>* joined) {
  EngineSetup setup;
  EngineConfig& config = setup.config;
  config = requested;
  setup.folder = resolve_model(config.model);
  config.model = setup.folder.string();
  setup.executor.gpu_library = choice.library;
  DeviceLibrary* const gpus = choice.library.get();
  const bool on_gpu = choice.on_gpu();
  config.device = on_gpu ? "cuda" : "cpu";
  setup.model = load_model_config(setup.folder);
  setup.generation = load_generation_config(setup.folder);
  check_eos(setup.generation, setup.model, setup.folder);
  check_stages(config, setup.model);
  check_speculation(config);
  check_lora(config);

  PlanRequest request;
  request.model = choose_model(config, setup.model, choice);
  require(on_gpu || config.linear_algorithms.empty(), "--linear-algorithms needs a GPU.");
  require(on_gpu || !config.lora.copy_memory_bytes,
          "--lora-copy-memory-bytes needs a GPU; on the CPU copies take the memory that is left.");
  if (on_gpu) check_gpu_takes(setup.model, config.max_num_seqs);
  if (on_gpu) {
    request.kernels = gpus != nullptr ? &gpus->kernels() : &planned_kernels();
    request.gpu_memory_utilization = config.gpu_memory_utilization;
    request.overhead_bytes = gpu_overhead_bytes(config, gpus);
  }
  request.model.max_model_len = choose_max_model_len(config, setup.model);
  request.model.size = config.tensor_parallel_size;
  request.num_stages = config.pipeline_parallel_size;
  if (config.lora.enabled) {
    request.max_loras = config.lora.max_loras;
    request.max_lora_rank = config.lora.max_lora_rank;
  }
  request.kv_cache_dtype = choose_kv_cache_dtype(config, setup.model, request.model.dtype, on_gpu);
  request.model.has_kv_scales = takes_scales(request.kv_cache_dtype);
  if (config.speculative_config && drafts_with_model(*config.speculative_config)) {
    request.draft = choose_draft_model(config, choice, request);
    const auto& head = request.draft->model.eagle;
    request.model.embeds_with_output_table = head && !head->has_output_table;
  }
  request.model.stage_layers = layers_of_stages(config, request);
  if (on_gpu && config.lora.enabled) {
    request.lora_copy_bytes = choose_lora_copy_bytes(setup, request);
    config.lora.copy_memory_bytes = request.lora_copy_bytes;
  }
  request.block_size = config.block_size;
  request.max_num_batched_tokens = max_step_tokens_of(config, on_gpu);
  request.max_num_seqs = config.max_num_seqs;
  if (on_gpu) set_gpu_drafts(config, request);
  request.num_blocks_override = config.num_gpu_blocks_override;
  request.kv_cache_memory_bytes = config.kv_cache_memory_bytes;
  config.dtype = name_of(request.model.dtype);
  config.max_model_len = request.model.max_model_len;
  if (joined != nullptr && config.cluster.num_nodes > 1) {
    check_model(request.model);  // before nodes wait for others that cannot run it either
    *joined = join_nodes(config, setup.folder, choose_isa(), choice);
    setup.executor.nodes = *joined;
  }
  cluster::NodeGroup* const nodes = setup.executor.nodes.get();
  const SharedMachine machine = share_machine(nodes);
  const int num_here = num_ranks_here(config);
  setup.executor.first_gpu =
      first_gpu(choice, num_here, machine.share.num_nodes, machine.share.place);
  if (nodes != nullptr && on_gpu) {
    cluster::check_gpus_are_apart(*nodes, gpus_of(choice, setup.executor.first_gpu, num_here));
  }
  request.available_bytes = on_gpu ? available_gpu_memory(choice, setup.executor.first_gpu, config)
                                   : machine.available_bytes;
  config.threads = choose_threads(config, num_here, machine.share.num_cores);
  request.threads_per_rank = config.threads / num_here;
  setup.plan = make_shared_plan(request, nodes);
  setup.plan.model = config.model;
  setup.plan.device_name = choice.name;
  setup.plan.device_note = choice.note;
  std::vector<CpuPlacement> places =
      machine.share.shares_cpus ? std::vector<CpuPlacement>(static_cast<size_t>(num_here))
                                : place_ranks(machine.topology, request.threads_per_rank, num_here);
  if (!on_gpu) setup.plan.threads = describe_threads(places, request.threads_per_rank);
  setup.executor.places = std::move(places);

  RunnerOptions& runner = setup.executor.runner;
  runner = runner_options(request, setup.plan.num_blocks);
  if (!config.linear_algorithms.empty() && gpus != nullptr) {
    GivenAlgorithms given =
        load_gpu_algorithms(config.linear_algorithms, gpus->devices().front(), request.model);
    runner.linear_algorithms = std::move(given.table);
    setup.plan.device_note = std::move(given.note);  // there is no other note on a GPU
  }
  runner.enforce_eager = config.enforce_eager;
  if (config.speculative_config) {
    runner.synthetic_acceptance = synthetic_rate(*config.speculative_config);
  }
  runner.eos_token_ids = setup.generation.eos_token_ids;
  runner.load_format = config.load_format;
  runner.seed = config.seed;
  setup.executor.tensor_parallel_size = config.tensor_parallel_size;
  setup.executor.pipeline_parallel_size = config.pipeline_parallel_size;
  setup.executor.threads_per_rank = request.threads_per_rank;
  setup.executor.isa = choose_isa();
  setup.max_forced_drafts = static_cast<size_t>(max_forced_drafts_of(config, on_gpu));
  setup.forces_ahead = on_gpu;
  if (on_gpu) setup.executor.gpu_rank_bytes = gpu_rank_bytes(request, setup.plan);
  setup.executor.on_progress = config.on_progress;

  SchedulerConfig& scheduler = setup.scheduler;
  scheduler.max_num_batched_tokens = config.max_num_batched_tokens;
  scheduler.max_num_seqs = config.max_num_seqs;
  if (on_gpu) {
    scheduler.max_drafts = request.max_drafts;
    scheduler.least_stage_chunk = kLeastStageChunkOfGpus;
  } else if (config.pipeline_parallel_size > 1) {
    scheduler.max_drafts = max_stage_drafts_of(config);
  }
  scheduler.max_model_len = request.model.max_model_len;
  scheduler.block_size = config.block_size;
  scheduler.num_blocks = setup.plan.num_blocks;
  scheduler.enable_prefix_caching = config.enable_prefix_caching;
  scheduler.eos_token_ids = setup.generation.eos_token_ids;
  scheduler.max_loras = request.max_loras;
  scheduler.num_stages = config.pipeline_parallel_size;
  return setup;
}

// The same; messages about a model's config.json name its folder or GGUF file, too.
EngineSetup set_up(const EngineConfig& config, const DeviceChoice& choice,
                   std::shared_ptr<cluster::NodeGroup>* joined) {
  try {
    return set_up_model(config, choice, joined);
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (!message.starts_with("config.json: ")) throw;
    const std::filesystem::path model = resolve_model(config.model);
    throw Error(fmt::format("{}{}{}", model.string(),
                            std::filesystem::is_directory(model) ? "/" : ": ", message));
  }
}

}  // namespace

ComputeSetup set_up_compute(const EngineConfig& config) {
  check_all_settings(config);
  ComputeSetup setup;
  const ModelConfig model = load_model_config(resolve_model(config.model));
  const DeviceChoice choice = choose_device(config);
  setup.on_gpu = choice.on_gpu();
  setup.model = choose_model(config, model, choice);
  setup.kv_cache_dtype = choose_kv_cache_dtype(config, model, setup.model.dtype, setup.on_gpu);
  setup.model.has_kv_scales = takes_scales(setup.kv_cache_dtype);
  setup.isa = choose_isa();
  setup.threads = choose_threads(config, num_ranks_here(config), cpu_topology().num_physical_cores);
  return setup;
}

EngineSetup set_up_engine(const EngineConfig& config) {
  check_all_settings(config);
  return set_up(config, choose_device(config), nullptr);
}

EngineSetup set_up_planned_gpus(const EngineConfig& config, int64_t memory_bytes) {
  check_all_settings(config);
  require(config.device != "cpu", "--device-memory plans for GPUs; leave --device cpu out.");
  constexpr int64_t kMostMemory = int64_t{1} << 50;
  require(memory_bytes >= 1 && memory_bytes <= kMostMemory,
          fmt::format("--device-memory is {}; expected 1 to {}.", memory_bytes, kMostMemory));
  return set_up(config, planned_gpus(config, memory_bytes), nullptr);
}

EngineSetup set_up_node(const EngineConfig& config) {
  check_all_settings(config);
  std::shared_ptr<cluster::NodeGroup> nodes;
  try {
    return set_up(config, choose_device(config), &nodes);
  } catch (const Error& error) {
    tell_cannot_start(nodes.get(), error);
    throw;
  }
}

void tell_cannot_start(cluster::NodeGroup* nodes, const Error& error) {
  if (nodes == nullptr) return;
  nodes->fail(fmt::format("Node {} cannot start: {}", nodes->node(), error.what()));
}

std::unique_ptr<Executor> start_executor(const EngineSetup& setup,
                                         std::shared_ptr<const LogitsProcessorRegistry> processors,
                                         std::shared_ptr<TokenMasks> token_masks,
                                         MemoryReserve* memory_reserve) {
  ThreadExecutorOptions options = setup.executor;
  options.memory_reserve = memory_reserve;
  options.on_message = setup.config.cluster.on_message;
  options.runner.logits_processors = std::move(processors);
  options.runner.token_masks = std::move(token_masks);
  cluster::NodeGroup* const nodes = options.nodes.get();
  try {
    if (setup.config.load_format == LoadFormat::kDummy) {
      return make_thread_executor(options, nullptr);
    }
    const Checkpoint checkpoint = Checkpoint::open(setup.folder);
    return make_thread_executor(options, &checkpoint);
  } catch (const Error& error) {
    tell_cannot_start(nodes, error);
    throw;
  }
}

}  // namespace quire
