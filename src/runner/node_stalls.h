#pragma once
// Ends a group of nodes in which a rank stands still: each node looks at its own ranks, and node 0
// at the progress of all, since ranks may wait for each other.
//
// Thread safety: progress() from any thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "cluster/node_group.h"
#include "runner/rank_activity.h"
#include "runner/stall_watch.h"

namespace quire {

struct WatchedRank {
  int index = 0;  // counted stage by stage
  const RankActivity* activity = nullptr;
  const ThreadPool* pool = nullptr;
};

// What the pointers lead to outlives the object.
struct NodeStallsOptions {
  cluster::NodeGroup* nodes = nullptr;
  std::vector<WatchedRank> ranks;         // of this process
  const RankActivity* waiting = nullptr;  // of the engine's thread, for a step of this process
  double limit_s = 0;
  // Called with a line for the user before the process ends. May be empty.
  std::function<void(const std::string&)> on_message;
};

class NodeStalls {
 public:
  // Looks from now on.
  explicit NodeStalls(NodeStallsOptions options);
  NodeStalls(const NodeStalls&) = delete;
  NodeStalls& operator=(const NodeStalls&) = delete;

  // Grows while the ranks of this process get on.
  uint64_t progress() const;

 private:
  std::unique_ptr<StallWatch> watch_ranks(const std::string& begin);
  std::unique_ptr<StallWatch> watch_group(const std::string& begin);
  bool computes(const WatchedRank& rank) const;
  // Of all processes; on node 0.
  uint64_t progress_of_group() const;
  // Ends the process: its destructors would wait for the rank's thread for ever.
  [[noreturn]] void leave_behind(const WatchedRank& rank) const;

  const NodeStallsOptions options_;
  std::unique_ptr<StallWatch> ranks_;
  std::unique_ptr<StallWatch> group_;  // node 0's
};

}  // namespace quire
