#include "runner/rank_places.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "cluster/node_communicator.h"

namespace quire {
namespace {

std::vector<std::unique_ptr<Communicator>> make_group_of_threads(int size, int num_threads) {
  if (size > 1) return make_local_communicators(size, num_threads);
  std::vector<std::unique_ptr<Communicator>> single;
  single.push_back(make_single_communicator());
  return single;
}

}  // namespace

RankPlaces::RankPlaces(std::shared_ptr<cluster::NodeGroup> nodes,
                       std::shared_ptr<DeviceLibrary> gpus, int first_gpu, int num_threads)
    : nodes_(std::move(nodes)),
      gpus_(std::move(gpus)),
      first_gpu_(first_gpu),
      num_threads_(num_threads) {
  while (!is_here(first_rank_)) ++first_rank_;
}

bool RankPlaces::is_here(int rank) const {
  return !nodes_ || nodes_->node_of_rank(rank) == nodes_->node();
}

bool RankPlaces::are_apart(const std::vector<int>& ranks) const {
  return nodes_ && std::ranges::any_of(ranks, [&](int rank) {
           return nodes_->node_of_rank(rank) != nodes_->node_of_rank(ranks.front());
         });
}

std::vector<std::unique_ptr<Communicator>> RankPlaces::make_group(
    uint8_t group, const std::vector<int>& ranks) const {
  const auto size = static_cast<int>(ranks.size());
  const auto num_here = std::ranges::count_if(ranks, [this](int rank) { return is_here(rank); });
  std::vector<std::unique_ptr<Communicator>> communicators(ranks.size());
  if (num_here == 0) return communicators;
  // Stages on GPUs talk otherwise (runner/stage_link.h).
  if (size > 1 && group == kTensorGroup && gpus_) return make_gpu_group(group, ranks);
  if (num_here == size) return make_group_of_threads(size, num_threads_);
  for (int i = 0; i < size; ++i) {
    const auto place = static_cast<size_t>(i);
    if (is_here(ranks[place])) {
      communicators[place] = make_node_communicator(nodes_, group, ranks, i);
    }
  }
  return communicators;
}

std::vector<std::unique_ptr<Communicator>> RankPlaces::make_gpu_group(
    uint8_t group, const std::vector<int>& ranks) const {
  GroupPart part{.size = static_cast<int>(ranks.size())};
  for (int i = 0; i < part.size; ++i) {
    const int rank = ranks[static_cast<size_t>(i)];
    if (!is_here(rank)) continue;
    part.ranks.push_back(i);
    part.indices.push_back(gpu_of(rank));
  }
  if (std::ssize(part.ranks) == part.size) return gpus_->make_communicators(part.indices);
  part.timeout_s = nodes_->timeout_s();
  part.id = share_group_id(*nodes_, group, ranks, [this] { return gpus_->make_group_id(); });
  part.exchange = [this, group, &ranks](std::span<const std::byte> mine) {
    return exchange_among_ranks(*nodes_, group, ranks, mine);
  };
  for (const int rank : part.ranks) {
    part.hosts.push_back(make_node_communicator(nodes_, group, ranks, rank));
  }
  auto here = gpus_->join_group(part);
  std::vector<std::unique_ptr<Communicator>> communicators(ranks.size());
  for (size_t i = 0; i < here.size(); ++i) {
    communicators[static_cast<size_t>(part.ranks[i])] = std::move(here[i]);
  }
  return communicators;
}

std::unique_ptr<StageLink> RankPlaces::make_link(uint8_t group, int from, int to) const {
  if (is_here(from) && is_here(to)) {
    gpus_->allow_reads(gpu_of(to), gpu_of(from));
    return make_stage_link();
  }
  if (!is_here(from) && !is_here(to)) return nullptr;
  const int place = is_here(from) ? 0 : 1;
  const int gpu = gpu_of(place == 0 ? from : to);
  const GroupPart part{
      .size = 2,
      .ranks = {place},
      .indices = {gpu},
      .id = share_group_id(*nodes_, group, {from, to}, [this] { return gpus_->make_group_id(); }),
      .hosts = {make_idle_communicator(place, 2)},
      .is_pair = true,
      .timeout_s = nodes_->timeout_s()};
  return make_node_stage_link(std::move(gpus_->join_group(part).front()), gpus_, gpu);
}

}  // namespace quire
