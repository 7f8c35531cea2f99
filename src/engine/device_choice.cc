#include "engine/device_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "engine/setting_checks.h"
#include "ops/linear.h"
#include "quire/error.h"
#include "runner/gpu_sizes.h"
#include "speculative/proposer.h"

namespace quire {
namespace {

constexpr int kLeastCapability = 80;

struct Search {
  LoadedLibrary loaded;
  std::vector<DeviceInfo> devices;
  std::string obstacle;   // why no GPU can be used; empty where it can
  bool is_fault = false;  // something is there and does not work
};

Search find_gpus(int num_ranks) {
  Search search;
  search.loaded = load_cuda_library();
  if (search.loaded.library == nullptr) {
    search.obstacle = search.loaded.explanation;
    search.is_fault = search.loaded.is_fault;
    return search;
  }
  try {
    search.devices = search.loaded.library->devices();
  } catch (const Error& error) {
    search.obstacle = error.what();
    search.is_fault = true;
    return search;
  }
  if (search.devices.empty()) {
    search.obstacle =
        "CUDA finds no GPU; see whether nvidia-smi does, and whether the driver is of release 580 "
        "or later.";
    return search;
  }
  for (size_t i = 0; i < search.devices.size() && i < static_cast<size_t>(num_ranks); ++i) {
    const DeviceInfo& device = search.devices[i];
    if (device.compute_capability >= kLeastCapability) continue;
    search.obstacle = fmt::format(
        "GPU {} ({}) has compute capability {}.{}, and quire's kernels need {}.{} or newer; "
        "CUDA_VISIBLE_DEVICES chooses among several GPUs.",
        i, device.name, device.compute_capability / 10, device.compute_capability % 10,
        kLeastCapability / 10, kLeastCapability % 10);
    search.is_fault = true;
    break;
  }
  return search;
}

std::string name_of_gpus(const EngineConfig& config, const DeviceInfo& first) {
  const int num_gpus = num_ranks_here(config);
  std::string name = num_gpus == 1 ? first.name : fmt::format("{} x {}", num_gpus, first.name);
  const int num_nodes = config.cluster.num_nodes;
  return num_nodes == 1 ? name : fmt::format("{} on each of {} nodes", name, num_nodes);
}

int count_alike(const std::vector<DeviceInfo>& devices) {
  const auto other = std::ranges::find_if(devices, [&](const DeviceInfo& device) {
    return device.compute_capability != devices.front().compute_capability;
  });
  return static_cast<int>(other - devices.begin());
}

// The result of a search without an obstacle.
DeviceChoice choice_of(const EngineConfig& config, Search search) {
  const int num_gpus = num_ranks_here(config);
  if (search.devices.size() < static_cast<size_t>(num_gpus)) {
    throw Error(fmt::format(
        "--tensor-parallel-size{}{} is {}, but CUDA finds {} GPU{}; expected at most so many, or "
        "--device cpu.",
        config.pipeline_parallel_size == 1 ? "" : " times --pipeline-parallel-size",
        config.cluster.num_nodes == 1 ? "" : " over --nnodes", num_gpus, search.devices.size(),
        search.devices.size() == 1 ? "" : "s"));
  }
  const int num_alike = count_alike(search.devices);
  const int capability = num_alike >= num_gpus ? search.devices.front().compute_capability : 0;
  return {.library = std::move(search.loaded.library),
          .name = name_of_gpus(config, search.devices.front()),
          .note = "",
          .compute_capability = capability,
          .num_alike = num_alike};
}

// Pairs of ranks in two processes, by which stages talk, that a rank of the first stage is in: for
// states and ids, for the drafts that a drafter there makes, and for what a head there sees of each
// later stage. None of another stage is in more.
int64_t pairs_of_first_stage(const EngineConfig& config) {
  constexpr int64_t kStatesAndIds = 2;
  const auto& speculation = config.speculative_config;
  if (!speculation || !drafts_with_model(*speculation)) return kStatesAndIds;
  const bool has_head = drafts_with_head(*speculation);
  return kStatesAndIds + 1 + (has_head ? config.pipeline_parallel_size - 1 : 0);
}

}  // namespace

DeviceChoice choose_device(const EngineConfig& config) {
  if (config.device == "cpu") return {};
  if (config.device == "cuda") return choose_gpus(config, "--device cuda");
  Search search = find_gpus(num_ranks_here(config));
  if (search.obstacle.empty()) return choice_of(config, std::move(search));
  if (!search.is_fault) return {};
  return {.library = nullptr,
          .name = "",
          .note = "Running on the CPU, as no GPU can be used: " + search.obstacle};
}

DeviceChoice planned_gpus(const EngineConfig& config, int64_t memory_bytes) {
  const int num_gpus = num_ranks(config);
  const double gib = static_cast<double>(memory_bytes) / static_cast<double>(int64_t{1} << 30);
  return {.library = nullptr,
          .name = fmt::format("{} GPU{} of {:.4g} GiB", num_gpus, num_gpus == 1 ? "" : "s", gib),
          .note = "Planned for GPUs that need not be here; what kernels take is estimated.",
          .compute_capability = ops::kQuantisedCapability,
          .planned_bytes = memory_bytes};
}

int first_gpu(const DeviceChoice& choice, int num_ranks, int num_nodes, int place) {
  return choice.num_alike >= num_ranks * num_nodes ? place * num_ranks : 0;
}

int64_t available_gpu_memory(const DeviceChoice& choice, int first, const EngineConfig& config) {
  int64_t least = choice.planned_bytes.value_or(std::numeric_limits<int64_t>::max());
  for (int i = 0; !choice.planned_bytes && i < num_ranks_here(config); ++i) {
    least = std::min(least, choice.library->free_bytes(first + i));
  }
  return static_cast<int64_t>(static_cast<double>(least) * config.gpu_memory_utilization) *
         num_ranks(config);
}

int64_t gpu_overhead_bytes(const EngineConfig& config, const DeviceLibrary* gpus) {
  const auto of_group = [gpus](int num_ranks) {
    return gpus != nullptr ? gpus->overhead_bytes(num_ranks) : planned_overhead_bytes(num_ranks);
  };
  int64_t bytes = of_group(config.tensor_parallel_size);
  if (config.cluster.num_nodes > 1 && config.pipeline_parallel_size > 1) {
    bytes += ceil_div(pairs_of_first_stage(config), 2) * (of_group(2) - of_group(1));
  }
  return bytes;
}

DeviceChoice choose_gpus(const EngineConfig& config, std::string_view who) {
  Search search = find_gpus(num_ranks_here(config));
  if (!search.obstacle.empty()) throw Error(fmt::format("{}: {}", who, search.obstacle));
  return choice_of(config, std::move(search));
}

}  // namespace quire
