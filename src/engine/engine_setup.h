#pragma once
// Turns an EngineConfig into all that an engine is built from, before anything is loaded.
//
// Thread safety: free functions of their arguments, the files and the machine's free memory.
#include <filesystem>
#include <memory>

#include "base/cpu_features.h"
#include "base/memory_reserve.h"
#include "loader/model_config.h"
#include "quire/engine_config.h"
#include "quire/plan.h"
#include "request/logits_processors.h"
#include "request/token_masks.h"
#include "runner/executor.h"
#include "runner/thread_executor.h"
#include "scheduler/scheduler.h"

namespace quire {

struct EngineSetup {
  EngineConfig config;           // every default filled in
  std::filesystem::path folder;  // of the model, or its GGUF file
  ModelConfig model;
  GenerationConfig generation;
  ThreadExecutorOptions executor;
  SchedulerConfig scheduler;
  MemoryPlan plan;
  // The most drafts of text that has no choice in a step's chunk; 0 where such text takes a step a
  // token.
  size_t max_forced_drafts = 0;
  // They are drafted behind tokens that are in flight, so that no step waits for the host.
  bool forces_ahead = false;
};

// What decides how fast an engine with this config can compute.
struct ComputeSetup {
  ModelOptions model;  // the whole, in one rank
  DType kv_cache_dtype = DType::kFloat32;
  bool on_gpu = false;
  Isa isa = Isa::kScalar;
  int threads = 1;  // over all ranks
};

// Does not look at the machine's free memory, because an engine may be using it. Throws as below.
ComputeSetup set_up_compute(const EngineConfig& config);

// Throws Error naming the setting, file or field that is wrong and what is expected.
EngineSetup set_up_engine(const EngineConfig& config);
// Only for a plan: GPUs of `memory_bytes` each that need not be there. Throws as above.
EngineSetup set_up_planned_gpus(const EngineConfig& config, int64_t memory_bytes);
// Like set_up_engine(); with several nodes it also waits for the others.
EngineSetup set_up_node(const EngineConfig& config);

// Tells the other nodes that this one cannot start. Does nothing where the group has ended already,
// and where there is none.
void tell_cannot_start(cluster::NodeGroup* nodes, const Error& error);

// Starts the ranks that are in this process, with the weights of the setup's model. The last
// three may be null.
std::unique_ptr<Executor> start_executor(const EngineSetup& setup,
                                         std::shared_ptr<const LogitsProcessorRegistry> processors,
                                         std::shared_ptr<TokenMasks> token_masks,
                                         MemoryReserve* memory_reserve);

}  // namespace quire
