#pragma once
// From an EngineConfig to everything that an engine is built of, before anything is loaded.
//
// Thread safety: free functions of their arguments, the files and the machine's free memory.
#include <filesystem>

#include "base/cpu_features.h"
#include "loader/model_config.h"
#include "quire/engine_config.h"
#include "quire/plan.h"
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

}  // namespace quire
