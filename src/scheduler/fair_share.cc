#include "scheduler/fair_share.h"

#include <numeric>

namespace quire::scheduler_internal {
namespace {

// A token of a client of weight 1. Large, so that rounding loses nothing that adds up: at the
// default weight of 100 a token costs 10,000.
constexpr int64_t kTokenWork = 1'000'000;

// What a client gets if the virtual time comes to be `level`, in tokens times kTokenWork.
int64_t work_at(VirtualTime level, const Claim& claim) {
  const VirtualTime rise = level - claim.virtual_time;
  if (rise <= 0) return 0;
  if (rise >= token_cost(claim.num_tokens, claim.weight)) return claim.num_tokens * kTokenWork;
  return rise * claim.weight;
}

int64_t total_work_at(VirtualTime level, std::span<const Claim> claims) {
  int64_t total = 0;
  for (const Claim& claim : claims) total += work_at(level, claim);
  return total;
}

// The highest level for which num_tokens are enough, where they are not enough for all.
VirtualTime highest_level(int64_t num_tokens, std::span<const Claim> claims) {
  VirtualTime low = claims.front().virtual_time;
  VirtualTime high = low;
  for (const Claim& claim : claims) {
    low = std::min(low, claim.virtual_time);
    high = std::max(high, claim.virtual_time + token_cost(claim.num_tokens, claim.weight));
  }
  while (high - low > 1) {
    const VirtualTime middle = std::midpoint(low, high);
    (total_work_at(middle, claims) <= num_tokens * kTokenWork ? low : high) = middle;
  }
  return low;
}

}  // namespace

VirtualTime token_cost(int64_t num_tokens, int32_t weight) {
  return (num_tokens * kTokenWork + weight - 1) / weight;
}

std::vector<int64_t> divide(int64_t num_tokens, std::span<const Claim> claims) {
  std::vector<int64_t> grants;
  int64_t claimed = 0;
  for (const Claim& claim : claims) {
    grants.push_back(claim.num_tokens);
    claimed += claim.num_tokens;
  }
  if (claimed <= num_tokens) return grants;
  const VirtualTime level = highest_level(num_tokens, claims);
  int64_t left = num_tokens;
  for (size_t i = 0; i < claims.size(); ++i) {
    grants[i] = work_at(level, claims[i]) / kTokenWork;
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
