#pragma once
// Finds the fastest of cuBLAS's algorithms for a model's matrix products, by timing them on this
// machine's first GPU. An engine never does this by itself: it is given the result as a file
// (EngineConfig::linear_algorithms).
//
// Thread safety: free functions of their arguments; the GPU should have nothing else to do.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/engine_config.h"
#include "quire/error.h"

namespace quire {

struct TuneOptions {
  // Numbers of activation rows to time, each 1 to kMaxNumBatchedTokens; those above what the
  // engine's settings allow in a step are left out. Empty: default_tune_rows(), then further powers
  // of two up to the most rows of tokens and of sequences that these settings allow, and these two
  // themselves.
  std::vector<int64_t> rows{};
  int max_algorithms = 16;  // that cuBLAS is asked for, a shape: 1 to kMaxTunedAlgorithms
  int repeats = 9;          // measurements of each: 1 to kMaxTuneRepeats
};
inline constexpr int kMaxTunedAlgorithms = 256;
inline constexpr int kMaxTuneRepeats = 1000;

// The sizes of decode steps from 64 to 256 sequences, then powers of two up to 16,384.
std::vector<int64_t> default_tune_rows();

// One shape: out[rows, n] = in[rows, k] * weight[n, k]^T.
struct TunedProduct {
  std::string name;  // of the layers that make it: "qkv_proj"
  int64_t n = 0;
  int64_t k = 0;
  int64_t rows = 0;
  std::string dtype;
  std::string out_dtype;
  int num_algorithms = 0;  // that were timed
  int choice = 0;          // which of them is best; 0: the first, which cuBLAS chooses by itself
  double first_s = 0;      // seconds of the first, the median
  double best_s = 0;       // of the best
  double flops = 0;        // of one product: multiply-adds, counted as two
  double bytes = 0;        // that one product reads and writes at least
};

struct TuneResult {
  std::string device_name;  // "NVIDIA H200"
  int compute_capability = 0;
  int num_multiprocessors = 0;
  double peak_flops_per_s = 0;  // of a product of 8192 cubed in the model's dtype, the best
  double copy_bytes_per_s = 0;  // read and written by a copy in the GPU's memory
  std::vector<TunedProduct> products;
  bool is_complete = true;  // false where on_progress ended it
  // The content of a file for EngineConfig::linear_algorithms: these products, and what the
  // config's own file held for other shapes and numbers of rows.
  std::string file;
};

// Called before each measurement with how many are done, how many there are, and what comes next.
// Returning false ends the tuning.
using TuneCallback = std::function<bool(int64_t num_done, int64_t num_all, std::string_view next)>;

// An algorithm other than cuBLAS's first is chosen only if it is at least 2 % faster, its results
// equal the first's within rounding, and they repeat bit for bit. Products with a bias are timed
// with one. Throws Error where there is no GPU, the model cannot be run, a file is wrong, there
// would be more shapes than a file holds, or the GPU has too little memory.
TuneResult tune(const EngineConfig& config, const TuneOptions& options,
                const TuneCallback& on_progress);

}  // namespace quire
