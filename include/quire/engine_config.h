#pragma once
// How an engine is set up. Names, meanings and defaults are vLLM's where it has them.
//
// Thread safety: a plain value.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/lora_serving.h"
#include "quire/speculative_config.h"

namespace quire {

enum class LoadFormat {
  kAuto,   // the folder's safetensors files
  kDummy,  // random weights from `seed`: only config.json is read
};

// Called while weights load, from one thread at a time: a phase, how much of it is done, and the
// whole, in bytes.
using ProgressCallback = std::function<void(std::string_view phase, int64_t done, int64_t total)>;

// Another node of a group was told to stop.
struct LeavingNode {
  std::string sentence{};  // names it
  // Ends the whole group with the sentence, if it has not ended. From any thread; after the engine
  // is gone without effect.
  std::function<void()> end_group{};
};

// Ranks in several processes, called nodes, on one host or several, on the CPU or on GPUs. All
// nodes have the same settings except `node_rank`, and the same number of ranks. Node 0 has the
// engine.
struct ClusterOptions {
  int num_nodes = 1;
  int node_rank = 0;  // of this process, 0 to num_nodes - 1
  // Where node 0 listens: a name or an address of its own, and a port.
  std::string master_addr = "127.0.0.1";
  int master_port = 29501;
  double join_timeout_s = 120;  // until all nodes are there
  // A secret that all nodes know and nobody else; required where master_addr is not this machine's
  // loopback. Nodes prove to each other that they know it, and keys derived from it encrypt what
  // they send.
  std::string secret{};
  // Called with lines for the user about nodes that come, from any thread.
  std::function<void(const std::string&)> on_message{};
  // On node 0: called when another node was told to stop, from any thread; it must not wait for the
  // engine. The engine goes on, so that running requests can finish, until it is destroyed, which
  // ends the group in order, or until end_group. Without this function the group ends at once.
  std::function<void(const LeavingNode&)> on_leaving{};
};

struct EngineConfig {
  std::string model{};  // a folder as Hugging Face publishes it, or "org/name" in the local cache

  int64_t max_num_batched_tokens = 16384;  // tokens in one step, >= 1
  int64_t max_num_seqs = 512;              // sequences in one step, >= 1
  std::optional<int64_t> max_model_len{};  // prompt and output together; none: from the config
  int block_size = 16;                     // tokens in a KV block: a multiple of 16 up to 256
  std::optional<int64_t> num_gpu_blocks_override{};  // KV blocks, instead of what memory allows
  std::optional<int64_t> kv_cache_memory_bytes{};    // over all ranks; none: half of the CPU's free
                                                     // memory, or what a GPU's share leaves
  double gpu_memory_utilization = 0.9;  // (0, 1]: of what is free on each GPU at the start
  bool enable_prefix_caching = true;
  // Above 1 on GPUs: a GPU can serve only one such engine of a process at a time.
  int tensor_parallel_size = 1;
  // Stages that the model's layers are cut into, each with tensor_parallel_size ranks. On GPUs each
  // rank has its own. The tokens are those of one stage, on GPUs as far as rounding goes.
  int pipeline_parallel_size = 1;
  // Number of layers of each stage, the first stage's first. Empty: chosen so that stages take
  // equal time.
  std::vector<int64_t> pipeline_layers{};
  ClusterOptions cluster{};
  bool enforce_eager = false;    // GPU only: no CUDA graphs
  bool async_scheduling = true;  // schedule the next step while one runs; same tokens either way
  // Drafts are verified several tokens a step; same tokens either way. None: a step brings
  // one token of a sequence.
  std::optional<SpeculativeConfig> speculative_config{};
  LoraOptions lora{};  // adapters that requests may name
  // > 0: prompts are cut into chunks so that a step takes about this many seconds, which bounds how
  // long running and new sequences are held up. While no sequence waits, steps of up to 512 tokens
  // may take four times as long. 0: only max_num_batched_tokens limits a step. With stages, the
  // steps in flight share this time. The tokens are the same either way.
  double target_step_s = 0;
  // GPU only: a file of `quire tune` that says which of cuBLAS's algorithms multiply matrices of
  // which shapes. Shapes that it lacks are looked up in quire's own table; for those that neither
  // has, cuBLAS chooses. Empty: no file.
  std::string linear_algorithms{};
  std::string dtype = "auto";  // "auto" (the config's), "float32", "bfloat16", on a GPU "float16"
  // Rounds linear layers that are dense in the checkpoint while they load.
  // "none": weights stay as they are.
  // "fp8": to e4m3 with a scale for each output. The embedding, the output layer and layers that a
  // quantization_config leaves dense stay as they are. A GPU needs compute capability 9.0 and a
  // dtype other than "float32"; its products of more than a few rows also round activations, by
  // token.
  // "int8", "int4": to integers in groups with a scale each, int4 also with an offset. On the CPU
  // the embedding and the output layer become int8, and products round activations to int8, except
  // with dtype "float32". A GPU needs the same as for "fp8", and rounds neither of these.
  std::string quantization = "none";
  // "auto" (as dtype); "fp8" or "fp8_e4m3", with a checkpoint's k_scale and v_scale; "fp8_e5m2",
  // without scales; CPU only: "int8", with a scale for each token and KV head. On a GPU the kinds
  // of fp8 do not go with dtype "float32".
  std::string kv_cache_dtype = "auto";
  std::string device = "auto";  // "auto" (a GPU where one is found), "cpu", "cuda"
  uint64_t seed = 0;
  LoadFormat load_format = LoadFormat::kAuto;
  // Chats: whether special tokens written out in messages become special tokens, as in
  // transformers. A message could then begin another's turn. If not, they are plain text.
  bool parse_special_tokens = false;
  // White space that may stand between the tokens of JSON answers. "none"; "compact": a space
  // behind each colon and comma; "N", from 1 to 1000: a space, or a line break and white space of N
  // bytes together. JSON is read with any white space.
  std::string structured_whitespace = "32";
  bool skip_tokenizer_init = false;  // prompts and outputs are token ids only
  int threads = 0;                   // CPU threads of this process; 0: the physical cores
  ProgressCallback on_progress{};
};

}  // namespace quire
