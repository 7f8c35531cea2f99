// The engine's work on adapters, beyond keeping them (engine/lora_store.h).
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "quire/error.h"
#include "request/lora_order.h"

namespace quire {

std::unique_ptr<LoraStore> EngineCore::make_lora_store(const EngineSetup& setup) {
  const LoraOptions& options = setup.config.lora;
  if (!options.enabled) return std::make_unique<LoraStore>();
  LoraTarget target = lora_target(setup);
  const auto nodes = setup.executor.nodes;
  if (!nodes) return std::make_unique<LoraStore>(options, std::move(target));
  const auto share = [nodes](const LoraWeights& weights, const std::string& path) {
    const std::string problem =
        nodes->give_order(encode_lora_order({weights.id, weights.content_hash, path}));
    if (!problem.empty()) throw Error(problem);
  };
  try {
    return std::make_unique<LoraStore>(options, std::move(target), share);
  } catch (const Error& error) {
    nodes->fail(fmt::format("Node 0 cannot start: {}", error.what()));
    throw;
  }
}

void EngineCore::tell_forgotten_loras() {
  const auto& nodes = setup_.executor.nodes;
  if (!nodes || !loras_->enabled()) return;
  const std::vector<uint64_t> ids = loras_->take_forgotten();
  if (!ids.empty()) nodes->send_batch(encode_forgotten_loras(ids));
}

void EngineCore::take_lora_request(RequestOptions& options) {
  if (!options.lora_request) return;
  if (!options.lora.empty()) {
    throw Error(
        fmt::format("The request names the adapter {} in lora and {} in lora_request; "
                    "expected one of them.",
                    options.lora, options.lora_request->name));
  }
  if (options.lora_weights) {
    throw Error(
        fmt::format("The request has lora_weights and the adapter {} in lora_request; expected one "
                    "of them.",
                    options.lora_request->name));
  }
  options.lora_weights = loras_->load_once(*options.lora_request);
  options.lora = options.lora_request->name;
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
