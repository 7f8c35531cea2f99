#pragma once
// Times cuBLAS's algorithms for the matrix products of one rank (quire/tune.h).
//
// Thread safety: free functions of their arguments; tune_products needs the GPU for itself.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/device_library.h"
#include "models/model.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/linear/algorithms.h"
#include "quire/tune.h"

namespace quire {

// A product that goes to cuBLAS unchanged.
struct TuningTask {
  std::string name;
  ops::LinearShape shape;
  bool has_bias = false;  // of one of its layers
};

struct TuningRequest {
  ModelOptions model;           // of one rank
  int64_t max_step_tokens = 0;  // rows of a product, but of the logits'
  int64_t max_logits_rows = 0;
  std::vector<int64_t> rows;                     // to be tuned; empty: usual_tune_rows()
  std::vector<ops::LinearAlgorithmEntry> known;  // to go into the result's file, too
};

// default_tune_rows(), then powers of two up to the most rows of a step; the most rows of a step
// and of logits are added.
std::vector<int64_t> usual_tune_rows(int64_t max_step_tokens, int64_t max_logits_rows);

// Each shape once, ordered by product, then by rows. `cublas_rows` says how many rows of a product
// go to cuBLAS at once, 0 for none (CudaKernels::linear_cublas_rows).
std::vector<TuningTask> plan_tuning(
    const TuningRequest& request, const ops::GpuKind& gpu,
    const std::function<int64_t(const MatrixProduct& product, int64_t rows)>& cublas_rows);

// The index of the trial to use, of at least one: 0, or one that is faster than the first by a
// margin, agrees with it and repeats.
size_t choose_trial(std::span<const ops::LinearTrial> trials, DType out_dtype);

// Runs on the library's first GPU. Throws Error where none of the products goes to cuBLAS, where
// the result is larger than a file may be, where the GPU has too little memory, and for errors of
// CUDA.
TuneResult tune_products(DeviceLibrary& library, const TuningRequest& request,
                         const TuneOptions& options, const TuneCallback& on_progress);

}  // namespace quire
