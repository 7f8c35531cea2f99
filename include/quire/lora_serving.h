#pragma once
// LoRA adapters that an engine serves beside the weights of their base: how many, and which.
//
// Thread safety: plain values.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire {

// Of an adapter's name, in UTF-8.
inline constexpr std::size_t kMaxAdapterNameBytes = 256;

// An adapter, and the name by which requests ask for it.
struct LoraPath {
  std::string name;  // 1 to kMaxAdapterNameBytes bytes
  std::string path;  // the folder that PEFT has saved
};

// An adapter that a request brings along, as vLLM's LoRARequest does: it need not be loaded before.
using LoraRequest = LoraPath;

// Names, meanings and defaults are vLLM's, but for copy_memory_bytes, which vLLM has not.
struct LoraOptions {
  bool enabled = false;
  // Different adapters in one step, 1 to kMaxLoras. The memory plan has room for them, but on the
  // CPU not for their trained copies of matrices.
  int max_loras = 1;
  int64_t max_lora_rank = 16;  // the largest that an adapter may have, 1 to kMaxServedLoraRank
  // GPU only: room on each GPU for the trained copies of an adapter's matrices, 0 to
  // kMaxLoraCopyBytes; the memory plan has max_loras times as much. None: as much as one of
  // `modules` takes at most, or with several nodes 0.
  std::optional<int64_t> copy_memory_bytes{};
  // How many adapters stay in host memory, max_loras or more; none: max_loras. The least recently
  // used goes first, and is read from its folder again when a request asks for it. Adapters of
  // unfinished requests stay beyond this number.
  std::optional<int> max_cpu_loras{};
  std::vector<LoraPath> modules{};  // loaded before the first request
};

inline constexpr int kMaxLoras = 1024;
inline constexpr int64_t kMaxServedLoraRank = 512;
inline constexpr int64_t kMaxLoraCopyBytes = int64_t{1} << 40;

// An adapter that requests can name.
struct LoraAdapterInfo {
  std::string name;
  std::string path;
  std::string parent;  // the model that it is for: EngineConfig::model, resolved
  std::string kind;    // "LoRA", "rsLoRA", "DoRA" or "rsDoRA"
  int64_t rank = 0;    // the largest of its modules; 0: it only replaces weights
  int64_t bytes = 0;   // of its weights in host memory
  // Hash of what the adapter computes, without its name and folder: adapters with the same hash
  // share their weights and cached prefixes.
  std::string content_hash;
  bool in_host_memory = false;
};

// A snapshot; counts are since the engine started.
struct LoraStats {
  int64_t num_loads = 0;               // of weights into host memory
  int64_t num_evictions = 0;           // of weights from host memory, for others
  int64_t num_waits = 0;               // sequences that had to wait because max_loras others ran
  std::vector<std::string> running{};  // names of adapters of running sequences, each once
  std::vector<std::string> waiting{};  // of sequences that wait, each once
};

}  // namespace quire
