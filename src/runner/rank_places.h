#pragma once
// Where the ranks of a model are: in which process, on which GPU; and how those of one group talk.
//
// Thread safety: immutable; make_group() and make_link() one thread at a time.
#include <cstdint>
#include <memory>
#include <vector>

#include "cluster/node_group.h"
#include "core/device_library.h"
#include "dist/communicator.h"
#include "runner/stage_link.h"

namespace quire {

// Distinguishes the messages of the ranks' groups: two ranks can share one group of each kind.
inline constexpr uint8_t kTensorGroup = 0;
inline constexpr uint8_t kPipelineGroup = 1;
inline constexpr uint8_t kStatePairs = 2;
inline constexpr uint8_t kIdPairs = 3;
inline constexpr uint8_t kDraftPairs = 4;
inline constexpr uint8_t kTapPairs = 5;

class RankPlaces {
 public:
  // Without nodes all ranks are in this process; without a library they are on the CPU, else the
  // i-th rank of this process is on GPU first_gpu + i. `num_threads`: those that work at once
  // in this process, for make_local_communicators().
  RankPlaces(std::shared_ptr<cluster::NodeGroup> nodes, std::shared_ptr<DeviceLibrary> gpus,
             int first_gpu, int num_threads);

  // Ranks are numbered over the whole model, stage by stage.
  bool is_here(int rank) const;
  // A rank's index among those in this process.
  int place_of(int rank) const { return rank - first_rank_; }
  int gpu_of(int rank) const { return first_gpu_ + place_of(rank); }

  // Whether these are in more than one process.
  bool are_apart(const std::vector<int>& ranks) const;

  // The communicators of a group's ranks that are in this process; null for the others. Every
  // process that has some of the ranks calls it in the same order. Throws Error.
  std::vector<std::unique_ptr<Communicator>> make_group(uint8_t group,
                                                        const std::vector<int>& ranks) const;
  // On GPUs: the way from one rank to another; null where neither is in this process. `group` tells
  // apart ways between the same ranks. Called as make_group() is.
  std::unique_ptr<StageLink> make_link(uint8_t group, int from, int to) const;

 private:
  std::vector<std::unique_ptr<Communicator>> make_gpu_group(uint8_t group,
                                                            const std::vector<int>& ranks) const;

  std::shared_ptr<cluster::NodeGroup> nodes_;
  std::shared_ptr<DeviceLibrary> gpus_;
  int first_gpu_;
  int num_threads_;
  int first_rank_ = 0;  // of this process
};

}  // namespace quire
