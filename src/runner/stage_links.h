#pragma once
// The ways between the ranks of a model's stages on GPUs.
//
// Thread safety: as RankPlaces::make_link().
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dist/communicator.h"
#include "runner/rank_places.h"
#include "runner/rank_runner.h"
#include "runner/stage_link.h"

namespace quire {

// Makes those of the ranks in this process, `width` of each of `num_stages` stages, and puts them
// where links_of(rank) says: of a rank, counted stage by stage, that is here. `draft`: of a drafter
// on the first stage. The ways have to be there as long as the ranks. Every process makes the same
// calls.
std::vector<std::unique_ptr<StageLink>> make_stage_links(
    const RankPlaces& places, int width, int num_stages,
    const std::optional<DraftModelOptions>& draft,
    const std::function<StageLinks&(int rank)>& links_of);

// How GPUs of several processes talk, as a sentence's end; empty where no group of ranks and no two
// stages are apart. `last`: the communicator of the last stage's ranks.
std::string describe_ways(const RankPlaces& places, int width, int num_stages,
                          const Communicator& last);

}  // namespace quire
