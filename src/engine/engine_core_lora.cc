// The engine's work on adapters, beyond keeping them (engine/lora_store.h).
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_core.h"

namespace quire {

std::unique_ptr<LoraStore> EngineCore::make_lora_store(const EngineSetup& setup) {
  const LoraOptions& options = setup.config.lora;
  if (!options.enabled) return std::make_unique<LoraStore>();
  LoraTarget target =
      lora_target(setup.folder, setup.model, setup.config.load_format != LoadFormat::kDummy,
                  options.max_lora_rank);
  target.on_gpu = setup.executor.gpu_library != nullptr;
  return std::make_unique<LoraStore>(options, std::move(target));
}

// The salt begins with the adapter's hash and a line break, which no hash contains. So whatever
// salt a client chooses, no request gets the prefixes of another adapter.
void EngineCore::set_lora(Request& facts, const std::string& name, LoraWeightsPtr weights) {
  std::string key;
  if (!name.empty()) {
    facts.lora = weights && loras_->enabled() ? std::move(weights) : loras_->hold(name);
    facts.lora_id = facts.lora->id;
    facts.lora_name = name;
    key = facts.lora->content_hash;
  }
  if (setup_.config.lora.enabled) facts.cache_salt = key + "\n" + facts.cache_salt;
}

LoraStats EngineCore::lora_stats(const SchedulerStats& scheduler) const {
  LoraStats stats = loras_->stats();
  stats.num_waits = scheduler.num_lora_waits;
  for (const auto& [adapter, count] : lora_requests_) {
    std::vector<std::string>& names =
        scheduler_.runs_lora(adapter.second) ? stats.running : stats.waiting;
    if (names.empty() || names.back() != adapter.first) names.push_back(adapter.first);
  }
  return stats;
}

}  // namespace quire
