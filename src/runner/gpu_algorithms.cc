#include "runner/gpu_algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "quire/error.h"

namespace quire {
namespace {

std::string text_of(const ops::GpuKind& gpu) {
  return fmt::format("compute capability {}.{} with {} multiprocessors",
                     gpu.compute_capability / 10, gpu.compute_capability % 10,
                     gpu.num_multiprocessors);
}

// "compute capability 9.0 with 132 multiprocessors, ..."; "no GPU" where there are no entries.
std::string kinds_in(const std::vector<ops::LinearAlgorithmEntry>& entries) {
  constexpr size_t kMostShown = 4;
  std::set<ops::GpuKind> kinds;
  for (const auto& entry : entries) kinds.insert(entry.shape.gpu);
  std::string text;
  size_t shown = 0;
  for (const ops::GpuKind& kind : kinds) {
    if (++shown > kMostShown) return text + " and others";
    text += (text.empty() ? "" : ", ") + text_of(kind);
  }
  return text.empty() ? "no GPU" : text;
}

}  // namespace

ops::GpuKind kind_of(const DeviceInfo& gpu) {
  return {gpu.compute_capability, gpu.num_multiprocessors};
}

std::shared_ptr<const ops::LinearAlgorithms> load_gpu_algorithms(const std::string& file,
                                                                 const DeviceInfo& gpu) {
  std::vector<ops::LinearAlgorithmEntry> entries = ops::read_linear_algorithms(file);
  const ops::GpuKind kind = kind_of(gpu);
  if (std::none_of(entries.begin(), entries.end(),
                   [&](const auto& entry) { return entry.shape.gpu == kind; })) {
    throw Error(
        fmt::format("{}: the file is for {}, and this GPU ({}) is of {}; make one for it with "
                    "'quire tune MODEL --output FILE', or leave --linear-algorithms out.",
                    file, kinds_in(entries), gpu.name, text_of(kind)));
  }
  return std::make_shared<ops::LinearAlgorithms>(std::move(entries));
}

}  // namespace quire
