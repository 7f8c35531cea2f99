#include "runner/node_stalls.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <utility>

#include "runner/stage_loads.h"

namespace quire {
namespace {

uint64_t progress_of(const WatchedRank& rank) {
  return rank.activity->num_changes() + rank.pool->progress();
}

}  // namespace

NodeStalls::NodeStalls(NodeStallsOptions options) : options_(std::move(options)) {
  const std::string begin =
      fmt::format("The group of {} nodes ends: ", options_.nodes->num_nodes());
  ranks_ = watch_ranks(begin);
  if (options_.nodes->node() == 0) group_ = watch_group(begin);
}

std::unique_ptr<StallWatch> NodeStalls::watch_ranks(const std::string& begin) {
  return std::make_unique<StallWatch>(StallWatchOptions{
      .num_ranks = options_.ranks.size(),
      .limit_s = options_.limit_s,
      .last_limit_s = 10,
      .computes = [this](size_t place) { return computes(options_.ranks[place]); },
      .progress = [this](size_t place) { return progress_of(options_.ranks[place]); },
      .on_stall =
          [this, begin](size_t) {
            options_.nodes->fail(fmt::format("{}node {} has computed nothing for {:g} s.", begin,
                                             options_.nodes->node(), options_.limit_s));
          },
      .on_end = [this](size_t place) { leave_behind(options_.ranks[place]); }});
}

std::unique_ptr<StallWatch> NodeStalls::watch_group(const std::string& begin) {
  // Longer than the limit of a node's own ranks, whose message names the node.
  const double limit_s = options_.limit_s * 1.1;
  return std::make_unique<StallWatch>(
      StallWatchOptions{.num_ranks = 1,
                        .limit_s = limit_s,
                        .last_limit_s = 0,
                        .computes = [this](size_t) { return options_.waiting->computes(); },
                        .progress = [this](size_t) { return progress_of_group(); },
                        .on_stall =
                            [this, begin, limit_s](size_t) {
                              options_.nodes->fail(fmt::format(
                                  "{}no node has computed anything for {:g} s.", begin, limit_s));
                            },
                        .on_end = [](size_t) {}});
}

bool NodeStalls::computes(const WatchedRank& rank) const {
  // In a group that has ended no rank waits for another.
  return rank.activity->computes() || (rank.activity->is_in_step() && options_.nodes->failure());
}

uint64_t NodeStalls::progress() const {
  uint64_t progress = 0;
  for (const WatchedRank& rank : options_.ranks) progress += progress_of(rank);
  return progress;
}

uint64_t NodeStalls::progress_of_group() const {
  uint64_t all = progress();
  for (int other = 1; other < options_.nodes->num_nodes(); ++other) {
    all += progress_in(options_.nodes->report_of(other));
  }
  return all;
}

void NodeStalls::leave_behind(const WatchedRank& rank) const {
  if (options_.on_message) {
    options_.on_message(fmt::format("{} Rank {} of node {} does not come back.",
                                    options_.nodes->failure().value_or(""), rank.index,
                                    options_.nodes->node()));
  }
  std::_Exit(1);
}

}  // namespace quire
