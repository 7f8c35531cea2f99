#pragma once
// Algorithms of matrix products as a file: what `quire tune --output` writes and
// --linear-algorithms reads.
//
//   {"made_with": "quire 0.1.0 on NVIDIA H200",
//    "linear_algorithms": [
//     {"compute_capability": 90, "multiprocessors": 132,
//      "dtype": "bfloat16", "out_dtype": "bfloat16",
//      "n": 4096, "k": 1024, "rows": 512,
//      "algorithm": {"id": 66, "tile": 23, "stages": 36, "split_k": 1, "reduction": 0,
//                    "swizzle": 0, "custom": 0, "inner_shape": 0, "cluster_shape": 2}}, ...]}
//
// The fields are those of LinearAlgorithmEntry; "algorithm" is null where the heuristics' first
// answer is best, and "made_with", which may be missing, is for people. Nothing else may be there.
// Thread safety: free functions.
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cuda/linear/algorithms.h"

namespace quire::ops {

inline constexpr size_t kMaxLinearAlgorithms = 65536;

// The entries of a file's text, in its order. Throws Error, with `name` for the file, which entry
// and field is wrong, what is there and what was expected.
std::vector<LinearAlgorithmEntry> parse_linear_algorithms(std::string_view text,
                                                          const std::string& name);
// The same of a file. Throws Error also where it cannot be read, or is longer than 32 MiB.
std::vector<LinearAlgorithmEntry> read_linear_algorithms(const std::filesystem::path& path);

// The file's text: an entry a line, in the order given.
std::string linear_algorithms_text(std::span<const LinearAlgorithmEntry> entries,
                                   std::string_view made_with);

}  // namespace quire::ops
