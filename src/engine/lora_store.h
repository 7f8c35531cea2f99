#pragma once
// The adapters that an engine's requests can name, and their weights in host memory.
//
// A name stands for a folder. The weights of the most recently used adapters stay in memory, up to
// LoraOptions::max_cpu_loras; others are read again when they are asked for. Weights live as long
// as somebody holds them. Thread safety: any thread; one folder is read at a time.
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
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
  // What is done with weights that were read from a folder, before anybody can use them. Throws
  // Error where they cannot be used.
  using Share = std::function<void(const LoraWeights& weights, const std::string& path)>;
  // `options` are checked. Loads their modules. Throws Error as load() does.
  LoraStore(const LoraOptions& options, LoraTarget target, Share share = {});

  // As in LLMEngine.
  void load(const std::string& name, const std::string& path, bool replace,
            LoraPathCheck check = {});
  // The weights of the folder, loaded by that name; whatever becomes of the name meanwhile. Throws
  // Error as load() does, also where the name stands for another folder.
  LoraWeightsPtr load_once(const LoraRequest& request);
  void unload(const std::string& name);
  std::vector<LoraAdapterInfo> list() const;
  // Nothing where that name is not loaded.
  std::optional<LoraAdapterInfo> info(const std::string& name) const;
  LoraWeightsPtr hold(const std::string& name);
  // Like hold(), but does not read: null where the weights are not in memory.
  LoraWeightsPtr find(const std::string& name);
  // With `share`: the ids of shared weights that are gone since the last call.
  std::vector<uint64_t> take_forgotten();
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
  // Outlives the weights that note their end there.
  struct Forgotten {
    // Without memory for the number, the other side keeps the weights.
    void note(uint64_t id) noexcept {
      try {
        const std::lock_guard lock(mutex);
        ids.push_back(id);
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch)
      }
    }
    std::mutex mutex;
    std::vector<uint64_t> ids;
  };
  // Weights that a name stands for or that somebody holds. May also have entries whose weights are
  // gone.
  struct Known {
    uint64_t id = 0;
    std::weak_ptr<const LoraWeights> weights;
  };

  void check_enabled() const;
  void check_name(const std::string& name, bool replace) const;
  // None where the name does not stand for the request's folder.
  std::optional<Adapter> adapter_of(const LoraRequest& request) const;
  // Of these weights; null where they are not in memory, or the name stands for something else.
  LoraWeightsPtr find_of(const LoraRequest& request);
  // Reads a folder that the name shall stand for. Called with reading_ held, and without mutex_.
  LoraWeightsPtr read_new(const std::string& name, const std::string& path, LoraPathCheck check);
  // The rest is called with mutex_ held.
  const Adapter& at(const std::string& name) const;
  // Null where the weights are not in memory.
  LoraWeightsPtr weights_of(const Adapter& adapter);
  LoraAdapterInfo describe(const std::string& name, const Adapter& adapter) const;
  // Reads a folder. Gives weights their number and shares them, or returns the equal ones that are
  // in memory already. Called with reading_ held, and without mutex_.
  LoraWeightsPtr read(const std::string& path);
  LoraWeightsPtr find_equal(const std::string& content_hash);
  // Has new weights stand for their content.
  void adopt(const LoraWeightsPtr& weights);
  // Weights to be freed. Freeing may take long, so a caller declares this list before it locks
  // mutex_: the weights are then freed after the lock is released.
  using Dropped = std::list<LoraWeightsPtr>;
  // Marks these as used last, and lets go of those beyond the limit.
  void touch(const LoraWeightsPtr& weights, Dropped& dropped);
  // Lets go of weights that no name stands for, and forgets the entries of those that nobody holds.
  void drop_nameless(Dropped& dropped);

  LoraOptions options_;
  LoraTarget target_;
  Share share_;
  std::shared_ptr<Forgotten> forgotten_ = std::make_shared<Forgotten>();
  std::mutex reading_;  // taken before mutex_
  mutable std::mutex mutex_;
  std::map<std::string, Adapter> adapters_;
  std::list<LoraWeightsPtr> resident_;            // what was used last comes last
  std::unordered_map<std::string, Known> known_;  // by content hash
  uint64_t last_id_ = 0;                          // with reading_ held
  LoraStats stats_;
};

}  // namespace quire
