#pragma once
// Which of cuBLASLt's algorithms multiplies matrices of a given shape on a given GPU: what
// `quire tune` measured. Where nothing is known of a shape, cuBLAS's heuristics choose.
//
// The choice depends on the GPU's kind, the shape and the table, and on nothing that is measured
// when an engine starts: the same table gives the same algorithm, and so the same bits, each time.
// A GPU's kind is its compute capability and its number of multiprocessors. These two decide which
// kernels there are and how their tiles fill the device, and they are what cuBLAS's own promise of
// equal bits is tied to. A name says less: boards of one chip have several, and a GPU that is
// shared out (MIG, MPS) shows fewer multiprocessors.
//
// Nothing of CUDA is in here. Thread safety: plain values and pure functions.
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"

namespace quire::ops {

struct GpuKind {
  int compute_capability = 0;  // 90: major times ten plus minor
  int num_multiprocessors = 0;
  auto operator<=>(const GpuKind&) const = default;  // NOLINT(modernize-use-nullptr)
};

// A product out[rows, n] = in[rows, k] * weight[n, k]^T, as cuBLAS gets it.
struct LinearShape {
  GpuKind gpu;
  DType dtype = DType::kBFloat16;      // of in and weight: float32, bfloat16 or float16
  DType out_dtype = DType::kBFloat16;  // dtype or float32
  int64_t n = 0;
  int64_t k = 0;
  int64_t rows = 0;
  auto operator<=>(const LinearShape&) const = default;  // NOLINT(modernize-use-nullptr)
};

// a and b differ in rows at most: their entries belong together.
bool same_matrix(const LinearShape& a, const LinearShape& b);

// An algorithm as cuBLASLt names it: what cublasLtMatmulAlgoInit and
// cublasLtMatmulAlgoConfigSetAttribute take. The numbers are cuBLAS's; another version of it may
// refuse them, and then its heuristics choose.
struct LinearAlgorithm {
  int32_t id = 0;
  uint32_t tile = 0;
  uint32_t stages = 0;
  int32_t split_k = 1;     // parts of k that are summed apart
  uint32_t reduction = 0;  // how these are added up: 0 or kReductionInFloat32
  uint32_t swizzle = 0;
  uint32_t custom = 0;
  uint16_t inner_shape = 0;
  uint16_t cluster_shape = 0;
  bool operator==(const LinearAlgorithm&) const = default;
};

// Parts in float32, added up in a second step. cuBLAS's other ways round the parts to the outputs'
// type, and sums are float32 here.
inline constexpr uint32_t kReductionInFloat32 = 2;
constexpr bool sums_in_float32(const LinearAlgorithm& algorithm) {
  return algorithm.reduction == 0 || algorithm.reduction == kReductionInFloat32;
}

// An entry speaks for its own number of rows and for those below it: down to the next smaller entry
// of the same matrix, but no further than half of its rows, so that a table with gaps says nothing
// of what lies in them.
struct LinearAlgorithmEntry {
  LinearShape shape;
  // Nothing: the heuristics' first answer was measured, and is best.
  std::optional<LinearAlgorithm> algorithm;
  bool operator==(const LinearAlgorithmEntry&) const = default;
};

// The entries of both in the order of their shapes; where both have one of the same shape, rows
// included, that of `newer`. Neither has a shape twice.
std::vector<LinearAlgorithmEntry> merge_linear_algorithms(
    std::span<const LinearAlgorithmEntry> older, std::span<const LinearAlgorithmEntry> newer);

// Entries in the order of their shapes, none twice. Where to look one up.
class LinearAlgorithms {
 public:
  // What is in the source: algorithms_table.cc.
  LinearAlgorithms();
  // `entries`, no shape twice, and those of the source whose shapes are not among them:
  // merge_linear_algorithms of the two.
  explicit LinearAlgorithms(const std::vector<LinearAlgorithmEntry>& entries);

  // Nothing where the heuristics are to choose.
  std::optional<LinearAlgorithm> find(const LinearShape& shape) const;
  std::span<const LinearAlgorithmEntry> entries() const { return entries_; }

 private:
  std::vector<LinearAlgorithmEntry> entries_;
};

// The source's table, in order.
std::span<const LinearAlgorithmEntry> built_in_linear_algorithms();

}  // namespace quire::ops
