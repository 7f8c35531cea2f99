#pragma once
// The adapters that an engine's requests can name, and their weights in host memory.
//
// A name stands for a folder. Weights of the adapters that were used last stay in memory, up to
// LoraOptions::max_cpu_loras; others are read again when they are asked for. Whoever holds weights
// keeps them alive. Thread safety: any thread; one folder is read at a time.
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/lora_reader.h"
#include "loader/lora_weights.h"
#include "quire/llm_engine.h"
#include "quire/lora_serving.h"

namespace quire {

using LoraWeightsPtr = HeldLora;

class LoraStore {
 public:
  // Serves nothing.
  LoraStore() = default;
  // `options` are checked. Loads their modules. Throws Error as load() does.
  LoraStore(const LoraOptions& options, LoraTarget target);

  // As LLMEngine has them.
  void load(const std::string& name, const std::string& path, bool replace,
            LoraPathCheck check = {});
  void unload(const std::string& name);
  std::vector<LoraAdapterInfo> list() const;
  // Nothing where that name is not loaded.
  std::optional<LoraAdapterInfo> info(const std::string& name) const;
  LoraWeightsPtr hold(const std::string& name);
  // The same without reading: null where the weights are not in memory.
  LoraWeightsPtr find(const std::string& name);
  bool enabled() const { return options_.enabled; }
  // num_loads and num_evictions.
  LoraStats stats() const;

 private:
  struct Adapter {
    std::string path;
    uint64_t id = 0;  // of what was read last
    std::string content_hash;
    std::string kind;
    int64_t rank = 0;
    int64_t bytes = 0;
    LoraPathCheck check;
  };
  // Weights that a name stands for or somebody holds, and perhaps some that nobody does any more.
  struct Known {
    uint64_t id = 0;
    std::weak_ptr<const LoraWeights> weights;
  };

  void check_enabled() const;
  void check_name(const std::string& name, bool replace) const;
  // The rest is called with mutex_ held.
  const Adapter& at(const std::string& name) const;
  // Null where they are not in memory.
  LoraWeightsPtr weights_of(const Adapter& adapter);
  LoraAdapterInfo describe(const std::string& name, const Adapter& adapter) const;
  // Gives weights their number, or those that are there already in their place.
  LoraWeightsPtr adopt(LoraWeights&& weights);
  // Weights that are let go of. A caller declares it before it locks mutex_, so that their memory,
  // which may take long to free, is freed without the lock.
  using Dropped = std::list<LoraWeightsPtr>;
  // Says that these were used last, and lets go of those that are too many.
  void touch(const LoraWeightsPtr& weights, Dropped& dropped);
  // Lets go of weights that no name stands for, and forgets those that nobody holds either.
  void drop_nameless(Dropped& dropped);

  LoraOptions options_;
  LoraTarget target_;
  std::mutex reading_;  // taken before mutex_
  mutable std::mutex mutex_;
  std::map<std::string, Adapter> adapters_;
  std::list<LoraWeightsPtr> resident_;            // what was used last comes last
  std::unordered_map<std::string, Known> known_;  // by content hash
  uint64_t last_id_ = 0;
  LoraStats stats_;
};

}  // namespace quire
