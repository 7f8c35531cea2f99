#pragma once
// How the prompt tokens of a step are shared between clients: by what each has used.
//
// A client's virtual time is the tokens computed for it, prompts and answers, divided by its weight
// (the virtual token counter of Sheng et al., "Fairness in Serving Large Language Models", OSDI
// 2024). A step's tokens raise the lowest virtual times to a common height, as water fills a vessel
// with an uneven floor. The level is the virtual time of the whole. A new client starts at the
// level, so that nobody saves up service; or with the client that is furthest behind, if that is
// lower, so that it has its part of the next step. The level rises with every step, so that
// newcomers cannot pass a client for ever (WF2Q+ of Bennett and Zhang, "Hierarchical Packet Fair
// Queueing Algorithms", SIGCOMM 1996). All in integers, so that it is the same everywhere.
//
// Thread safety: free functions, and a plain value.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace quire::scheduler_internal {

using VirtualTime = int64_t;

// The virtual time that num_tokens cost a client of that weight (Request::client_weight), rounded
// up.
VirtualTime token_cost(int64_t num_tokens, int32_t weight);

// A client that has prompts to compute.
struct Claim {
  VirtualTime virtual_time = 0;
  int32_t weight = 0;
  int64_t num_tokens = 0;  // of its prompts, 0 to kMaxNumBatchedTokens
};

// Each claim's part of num_tokens, >= 0: all that it claims if there is enough for all. Else all
// tokens are given, and the clients that get less than they claim reach the same virtual time, to
// within a token each, unless they were above it and get nothing.
std::vector<int64_t> divide(int64_t num_tokens, std::span<const Claim> claims);

class VirtualClock {
 public:
  VirtualTime level() const { return level_; }
  // Raises the level to `least`, the least virtual time of the clients that have prompts to
  // compute.
  void raise_to(VirtualTime least) { level_ = std::max(level_, least); }
  // A step computed num_tokens, where the clients that shared it have that weight together, >= 1.
  void advance(int64_t num_tokens, int64_t total_weight);

 private:
  VirtualTime level_ = 0;
};

}  // namespace quire::scheduler_internal
