#pragma once
// Times cuBLAS's algorithms for the matrix products of one rank (quire/tune.h).
//
// Thread safety: free functions of their arguments; tune_products has the GPU for itself.
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

// A product that cuBLAS gets as it is.
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

// default_tune_rows(), on by powers of two to the most rows that a step has, and these; and the
// most that logits are computed of.
std::vector<int64_t> usual_tune_rows(int64_t max_step_tokens, int64_t max_logits_rows);

// Each shape once, by product and then by rows. `cublas_rows` says how many rows of a product
// cuBLAS gets at once, 0 for none (CudaKernels::linear_cublas_rows).
std::vector<TuningTask> plan_tuning(
    const TuningRequest& request, const ops::GpuKind& gpu,
    const std::function<int64_t(const MatrixProduct& product, int64_t rows)>& cublas_rows);

// Which of the trials, which are not empty, is to be used: 0, or one that is faster than the first
// by a margin, agrees with it and repeats.
size_t choose_trial(std::span<const ops::LinearTrial> trials, DType out_dtype);

// On the library's first GPU. Throws Error where none of the products goes to cuBLAS, where the
// result would be more than a file may hold, where the GPU has too little memory, and for what CUDA
// says.
TuneResult tune_products(DeviceLibrary& library, const TuningRequest& request,
                         const TuneOptions& options, const TuneCallback& on_progress);

}  // namespace quire
