#pragma once
// The algorithms of a GPU's matrix products that a user gives (--linear-algorithms).
//
// Thread safety: free functions of their arguments and of the file.
#include <memory>
#include <string>

#include "core/device_library.h"
#include "models/model.h"
#include "ops/cuda/linear/algorithms_file.h"

namespace quire {

ops::GpuKind kind_of(const DeviceInfo& gpu);

// A model's product of so many rows, in its dtype, as cuBLAS gets it.
ops::LinearShape shape_of(const MatrixProduct& product, const ops::GpuKind& gpu, DType dtype,
                          int64_t rows);

struct GivenAlgorithms {
  std::shared_ptr<const ops::LinearAlgorithms> table;  // the file's and the source's
  std::string note;  // a sentence where none of the file's is of the model's matrices; else empty
};

// For a rank of `model`. Throws Error where the file cannot be read or is wrong
// (ops/cuda/linear/algorithms_file.h), and where it has nothing for a GPU like this one.
GivenAlgorithms load_gpu_algorithms(const std::string& file, const DeviceInfo& gpu,
                                    const ModelOptions& model);

}  // namespace quire
