#include "dist/gpu_claims.h"

#include <fmt/format.h>

#include "quire/error.h"

namespace quire {

GpuClaim GpuClaims::claim(std::span<const int> gpus) {
  auto wanted = std::make_shared<const std::set<int>>(gpus.begin(), gpus.end());
  const std::lock_guard lock(mutex_);
  std::erase_if(claims_, [](const auto& claim) { return claim.expired(); });
  for (const auto& claim : claims_) {
    const GpuClaim held = claim.lock();
    if (held == nullptr) continue;
    for (const int gpu : *wanted) {
      if (!held->contains(gpu)) continue;
      throw Error(fmt::format(
          "GPU {} belongs to another engine of this process that spreads over several GPUs. Two "
          "such engines on one GPU could wait for each other for ever: end the other first, or "
          "run this one in a process of its own.",
          gpu));
    }
  }
  claims_.push_back(wanted);
  return wanted;
}

}  // namespace quire
