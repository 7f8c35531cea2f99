#pragma once
// From an EngineConfig to everything that an engine is built of, before anything is loaded.
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
  bool verifies_drafts = false;  // its runners take verify chunks
};

// What decides how fast an engine with this config can compute.
struct ComputeSetup {
  ModelOptions model;  // the whole, in one rank
  DType kv_cache_dtype = DType::kFloat32;
  bool on_gpu = false;
  Isa isa = Isa::kScalar;
  int threads = 1;  // over all ranks
};

// Without a look at the machine's free memory: an engine may be holding it. Throws as below.
ComputeSetup set_up_compute(const EngineConfig& config);

// Throws Error naming the setting, file or field that is wrong and what is expected.
EngineSetup set_up_engine(const EngineConfig& config);
// For a plan only, of GPUs that need not be there, each with `memory_bytes`. Throws as above.
EngineSetup set_up_planned_gpus(const EngineConfig& config, int64_t memory_bytes);
// The same, and waits for the other nodes where there are to be several.
EngineSetup set_up_node(const EngineConfig& config);

// Starts the ranks that are in this process, with the weights of the setup's model. The last
// three may be null.
std::unique_ptr<Executor> start_executor(const EngineSetup& setup,
                                         std::shared_ptr<const LogitsProcessorRegistry> processors,
                                         std::shared_ptr<TokenMasks> token_masks,
                                         MemoryReserve* memory_reserve);

}  // namespace quire
