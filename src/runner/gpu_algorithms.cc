#include "runner/gpu_algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/counted_model.h"
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

// Whether one of the entries is of a matrix of the model's.
bool serves(const std::vector<ops::LinearAlgorithmEntry>& entries, const ops::GpuKind& gpu,
            const ModelOptions& model) {
  for (const MatrixProduct& product : CountedModel(model).model().products()) {
    if (!product.format.is_dense()) continue;
    const ops::LinearShape shape = shape_of(product, gpu, model.dtype, 0);
    if (std::any_of(entries.begin(), entries.end(),
                    [&](const auto& entry) { return ops::same_matrix(entry.shape, shape); })) {
      return true;
    }
  }
  return false;
}

}  // namespace

ops::GpuKind kind_of(const DeviceInfo& gpu) {
  return {gpu.compute_capability, gpu.num_multiprocessors};
}

ops::LinearShape shape_of(const MatrixProduct& product, const ops::GpuKind& gpu, DType dtype,
                          int64_t rows) {
  const DType out_dtype = product.is_logits ? DType::kFloat32 : dtype;
  return {gpu, dtype, out_dtype, product.n, product.k, rows};
}

GivenAlgorithms load_gpu_algorithms(const std::string& file, const DeviceInfo& gpu,
                                    const ModelOptions& model) {
  const std::vector<ops::LinearAlgorithmEntry> entries = ops::read_linear_algorithms(file);
  const ops::GpuKind kind = kind_of(gpu);
  if (std::none_of(entries.begin(), entries.end(),
                   [&](const auto& entry) { return entry.shape.gpu == kind; })) {
    throw Error(
        fmt::format("{}: the file is for {}, and this GPU ({}) is of {}; make one for it with "
                    "'quire tune MODEL --output FILE', or leave --linear-algorithms out.",
                    file, kinds_in(entries), gpu.name, text_of(kind)));
  }
  GivenAlgorithms given;
  given.table = std::make_shared<ops::LinearAlgorithms>(entries);
  if (!serves(entries, kind, model)) {
    given.note = fmt::format(
        "{} has nothing for this model's matrix products in {} with --tensor-parallel-size {}; "
        "'quire tune MODEL --output FILE' makes a file that has.",
        file, name_of(model.dtype), model.size);
  }
  return given;
}

}  // namespace quire
