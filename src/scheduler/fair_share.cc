#include "scheduler/fair_share.h"

#include <numeric>

namespace quire::scheduler_internal {
namespace {

// A token of a client of weight 1. Large, so that rounding loses nothing that adds up: at the
// default weight of 100 a token costs 10,000.
constexpr int64_t kTokenWork = 1'000'000;

// A claim, and the virtual time at which it is filled.
struct Vessel {
  const Claim& claim;
  VirtualTime full_at;

  explicit Vessel(const Claim& its_claim)
      : claim(its_claim),
        full_at(its_claim.virtual_time + token_cost(its_claim.num_tokens, its_claim.weight)) {}

  // What its client gets if the virtual time comes to be `level`, in tokens times kTokenWork.
  int64_t work_at(VirtualTime level) const {
    if (level >= full_at) return claim.num_tokens * kTokenWork;
    return std::max<VirtualTime>(level - claim.virtual_time, 0) * claim.weight;
  }
};

int64_t total_work_at(VirtualTime level, std::span<const Vessel> vessels) {
  int64_t total = 0;
  for (const Vessel& vessel : vessels) total += vessel.work_at(level);
  return total;
}

// The highest level for which num_tokens are enough, where they are not enough for all.
VirtualTime highest_level(int64_t num_tokens, std::span<const Vessel> vessels) {
  VirtualTime low = vessels.front().claim.virtual_time;
  VirtualTime high = low;
  for (const Vessel& vessel : vessels) {
    low = std::min(low, vessel.claim.virtual_time);
    high = std::max(high, vessel.full_at);
  }
  while (high - low > 1) {
    const VirtualTime middle = std::midpoint(low, high);
    (total_work_at(middle, vessels) <= num_tokens * kTokenWork ? low : high) = middle;
  }
  return low;
}

}  // namespace

VirtualTime token_cost(int64_t num_tokens, int32_t weight) {
  return (num_tokens * kTokenWork + weight - 1) / weight;
}

std::vector<int64_t> divide(int64_t num_tokens, std::span<const Claim> claims) {
  std::vector<int64_t> grants;
  grants.reserve(claims.size());
  int64_t claimed = 0;
  for (const Claim& claim : claims) {
    grants.push_back(claim.num_tokens);
    claimed += claim.num_tokens;
  }
  if (claimed <= num_tokens) return grants;
  const std::vector<Vessel> vessels(claims.begin(), claims.end());
  const VirtualTime level = highest_level(num_tokens, vessels);
  int64_t left = num_tokens;
  for (size_t i = 0; i < claims.size(); ++i) {
    grants[i] = vessels[i].work_at(level) / kTokenWork;
    left -= grants[i];
  }
  // Parts of tokens, to those that are at the level first.
  for (const bool any : {false, true}) {
    for (size_t i = 0; i < claims.size() && left > 0; ++i) {
      if (grants[i] == claims[i].num_tokens) continue;
      if (!any && claims[i].virtual_time > level) continue;
      ++grants[i];
      --left;
    }
  }
  return grants;
}

void VirtualClock::advance(int64_t num_tokens, int64_t total_weight) {
  level_ += num_tokens * kTokenWork / total_weight;
}

}  // namespace quire::scheduler_internal
