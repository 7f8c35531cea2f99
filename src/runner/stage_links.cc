#include "runner/stage_links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

namespace quire {
namespace {

using LinksOf = std::function<StageLinks&(int rank)>;

class Linker {
 public:
  Linker(const RankPlaces& places, const LinksOf& links_of)
      : places_(places), links_of_(links_of) {}

  void link(uint8_t group, int from, int to, StageLink* StageLinks::*sends,
            StageLink* StageLinks::*receives) {
    StageLink* const way = make(group, from, to);
    if (way == nullptr) return;
    if (places_.is_here(from)) links_of_(from).*sends = way;
    if (places_.is_here(to)) links_of_(to).*receives = way;
  }

  // What a head sees of stage `stage`.
  void link_taps(int from, int to, size_t stage) {
    StageLink* const way = make(kTapPairs, from, to);
    if (way == nullptr) return;
    if (places_.is_here(from)) links_of_(from).taps_to_first = way;
    if (!places_.is_here(to)) return;
    std::vector<StageLink*>& taps = links_of_(to).taps_from;
    if (taps.size() <= stage) taps.resize(stage + 1);
    taps[stage] = way;
  }

  std::vector<std::unique_ptr<StageLink>> take() { return std::move(made_); }

 private:
  // Null where neither rank is here.
  StageLink* make(uint8_t group, int from, int to) {
    std::unique_ptr<StageLink> made = places_.make_link(group, from, to);
    if (!made) return nullptr;
    made_.push_back(std::move(made));
    return made_.back().get();
  }

  const RankPlaces& places_;
  const LinksOf& links_of_;
  std::vector<std::unique_ptr<StageLink>> made_;
};

}  // namespace

std::vector<std::unique_ptr<StageLink>> make_stage_links(
    const RankPlaces& places, int width, int num_stages,
    const std::optional<DraftModelOptions>& draft, const LinksOf& links_of) {
  Linker linker(places, links_of);
  const int num_ranks = width * num_stages;
  const int last = num_ranks - width;  // the first rank of the last stage
  for (int to = width; to < num_ranks; ++to) {
    linker.link(kStatePairs, to - width, to, &StageLinks::to_next, &StageLinks::from_previous);
  }
  for (int to = 0; to < width; ++to) {
    linker.link(kIdPairs, last + to, to, &StageLinks::ids_to_first, &StageLinks::ids_from_last);
  }
  for (int first = 0; draft && first < width; ++first) {
    linker.link(kDraftPairs, first, last + first, &StageLinks::drafts_to_last,
                &StageLinks::drafts_from_first);
    for (int stage = 1; draft->model.eagle && stage < num_stages; ++stage) {
      linker.link_taps(stage * width + first, first, static_cast<size_t>(stage));
    }
  }
  return linker.take();
}

std::string describe_ways(const RankPlaces& places, int width, int num_stages,
                          const Communicator& last) {
  const int num_ranks = width * num_stages;
  std::vector<int> ranks(static_cast<size_t>(width));
  std::iota(ranks.begin(), ranks.end(), num_ranks - width);
  std::vector<std::string> ways;
  if (places.are_apart(ranks)) {
    // A group splits rows where its GPUs reach each other's memory, and only there.
    ways.emplace_back(last.splits_rows()
                          ? "the ranks of a stage share GPU memory (CUDA IPC) and use NCCL"
                          : "the ranks of a stage use NCCL only");
  }
  for (int rank = 0; rank + width < num_ranks; ++rank) {
    if (!places.are_apart({rank, rank + width})) continue;
    ways.emplace_back("stages use NCCL");
    break;
  }
  if (ways.empty()) return {};
  return fmt::format("between GPUs of several processes {}", fmt::join(ways, ", "));
}

}  // namespace quire
