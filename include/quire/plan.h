#pragma once
// Where the memory of an engine would go, computed from the config before anything is loaded, and
// what a model folder holds.
//
// Thread safety: free functions of their arguments, the files and the machine's memory.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/engine_config.h"
#include "quire/error.h"

namespace quire {

struct PlannedBuffer {
  std::string name;   // "weights", "kv cache", "activations", ...
  int64_t bytes = 0;  // over all ranks
  std::string
      detail;  // what it is made of: "28 layers x 8 heads x 128 x 4,096 blocks of 16, bfloat16"
};

// One stage of a model that is cut into stages; bytes are sums over the stage's ranks.
struct PlannedStage {
  int64_t first_layer = 0;
  int64_t num_layers = 0;
  int64_t weight_bytes = 0;
  int64_t kv_bytes = 0;
};

struct MemoryPlan {
  std::string model;  // the folder
  std::string architecture;
  std::string device;       // "cpu", "cuda"
  std::string device_name;  // "NVIDIA H200", "4 x NVIDIA H200"; empty on the CPU
  // A sentence, else empty: why no GPU is used although the machine seems to have one, or that the
  // file of EngineConfig::linear_algorithms has nothing for this model.
  std::string device_note;
  std::string dtype;
  // Where this process's threads on the CPU run, and have their memory: "2 threads: CPUs 0-1 of
  // NUMA node 0 (a rank's first thread is not pinned)". Empty on GPUs.
  std::string threads;
  int64_t num_parameters = 0;
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  std::vector<PlannedStage> stages;  // empty where there is one
  std::vector<PlannedBuffer> buffers;
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // free on the machine, or the container's limit where that is
                                // lower; of GPUs the share of it that may be taken
  int64_t block_size = 0;
  int64_t bytes_per_block = 0;  // over all layers and ranks; on GPUs with its tokens' ids
  int64_t num_blocks = 0;
  int64_t num_cache_tokens = 0;  // num_blocks * block_size
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 0;
  int64_t max_num_batched_tokens = 0;
  // Full-length sequences that fit at once; at least 1 or plan() throws.
  int64_t max_full_length_seqs = 0;
};

// Throws Error as LLMEngine's constructor would: no such model, an unsupported one, or too little
// memory for even one sequence (naming which setting to change to what).
MemoryPlan plan(const EngineConfig& config);
// A plan for tensor_parallel_size * pipeline_parallel_size GPUs that this machine need not have.
// Each has `memory_bytes`; quire may take gpu_memory_utilization of them. Nothing of this machine
// is looked at; what kernels take for themselves is estimated (docs/parallelism.md).
MemoryPlan plan_for_gpus(const EngineConfig& config, int64_t memory_bytes);

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string file;
};

struct ModelInfo {
  std::string folder;  // or the GGUF file
  std::string architecture;
  bool supported = false;
  std::string unsupported_reason;  // empty if supported
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;
  std::string dtype;         // of what is not quantised
  std::string quantization;  // what is, and how; empty if nothing
  // How products with quantised layers take their activations on the CPU and on a GPU; empty where
  // nothing is quantised or the model is not supported.
  std::string activations;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_model_len = 0;
  std::string rope;            // "yarn, factor 4, theta 1000000"
  std::string sliding_window;  // "none", "4096 in 24 of 28 layers"
  bool tie_word_embeddings = false;
  std::vector<int32_t> eos_token_ids;
  bool has_tokenizer = false;
  int64_t tokenizer_vocab_size = 0;
  bool has_chat_template = false;
  std::vector<std::string> files;  // in the folder, with sizes
  std::vector<TensorInfo> tensors;
};

// Reads headers only. Throws Error if there is no such model or a file of it is damaged.
ModelInfo inspect(const std::string& model);

}  // namespace quire
